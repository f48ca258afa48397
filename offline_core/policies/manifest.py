"""What a checkpoint is and where it comes from: `policy.json`. Reading it loads neither weights nor Torch."""

from __future__ import annotations

import functools
import hashlib
import logging
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field, ValidationError

from offline_core.data.datasets.catalogue import POLICY_FILE as POLICY_FILE
from offline_core.data.datasets.folder_kind import folder_at, not_a_policy
from offline_core.data.datasets.manifest import Operation, Parent, fingerprint_of_weights
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.store.json_files import reason_of, with_checksum, without_checksum
from offline_core.data.store.location import Location
from offline_core.errors import (
    CheckpointError,
    ConfigError,
    CorruptFileError,
    LocationError,
    StorageError,
    StorageUnavailableError,
)
from offline_core.policies.config import NetworkConfig
from offline_core.policies.kind import WORDS, kind_of
from offline_core.policies.registry import Move, parse_address
from offline_core.runtime.code_permission import recorded_environment
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.provenance import provenance
from offline_core.runtime.result import StoredModel

log = logging.getLogger(__name__)
READS: Literal[1] = 1
"""The version of the checkpoint format that is written and read."""


class PolicyManifest(StoredModel):
    """The network and spaces of a checkpoint, and its lineage."""

    checkpoint_version: Literal[1] = READS
    network: NetworkConfig
    value_function: bool
    observation_space: dict[str, Any]
    action_space: dict[str, Any]
    input_columns: InputColumns | None = None
    """What its observations are made of; None: not known."""
    environment: EnvironmentSpec | None = None
    operation: Operation
    parents: list[Parent] = Field([])
    metrics: dict[str, float] = Field({})
    weights_file: str
    weights_sha256: str
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    provenance: dict[str, str] = Field(default_factory=provenance)

    @property
    def fingerprint(self) -> str:
        """See `fingerprint_of_weights`."""
        transformer = self.network.transformer
        return fingerprint_of_weights(self.weights_sha256, None if transformer is None else transformer.target_return)

    def parent_entry(self, uri: str) -> Parent:
        """This checkpoint as a parent in the manifest of another result."""
        return Parent(kind="checkpoint", uri=Location.of(uri).uri, fingerprint=self.fingerprint)


def read_policy_manifest(uri: str) -> PolicyManifest:
    """Read `policy.json` without loading weights.

    Raises:
        CheckpointError: it does not exist, or cannot be read.
        StorageUnavailableError: the storage does not answer now.
    """
    location = Location.of(uri).child(POLICY_FILE)
    try:
        return PolicyManifest.model_validate_json(without_checksum(Location.of(uri).inside(POLICY_FILE).read(), location.uri))
    except StorageUnavailableError:
        raise
    except LocationError as error:
        raise CheckpointError(f"The policy at {uri} is not read: {error}") from error
    except StorageError as error:
        location.check_bucket()
        raise CheckpointError(
            f"There is no policy at {uri}: {error} Train one with 'offline train-expert' or 'offline train'."
        ) from error
    except CorruptFileError as error:
        raise CheckpointError(str(error)) from error
    except ValidationError as error:
        reason = reason_of(error, "checkpoint_version", READS)
        raise CheckpointError(f"{location.uri} is not a policy checkpoint that can be read: {reason}.") from error


def find_policy(policy: str) -> tuple[str, PolicyManifest]:
    """The checkpoint that a text names, and its manifest.

    Arguments:
        policy: URI of a checkpoint, or the address of a registered one, `<registry>/<name>@<alias>`. The folder of a training,
            an expert, a fine-tuning, a sweep or a decision stands for the policy that it came to.

    Raises:
        CheckpointError: there is none, it cannot be read, or it is not the one that was registered.
        CorruptFileError: the history of the registry is damaged.
        StorageUnavailableError: the storage does not answer now.
    """
    if (kind := kind_of(policy)) != "checkpoint":
        raise CheckpointError(
            f"{policy} is {WORDS[kind]} and no checkpoint: 'offline estimate', 'decide' and 'explain' judge it on a log, and "
            "nothing plays, promotes or learns from it. Name a checkpoint here."
        )
    address = parse_address(policy)
    if address is None or (not address.exists and Location.of(policy).child(POLICY_FILE).is_file()):
        return _at(Location.of(policy).uri)
    move = address.move()
    return address.entry.inside(move.checkpoint).uri, registered_policy(address.entry, move)


def registered_policy(entry: Location, move: Move) -> PolicyManifest:
    """The manifest of the checkpoint that a move of a name in a registry named.

    Raises:
        CheckpointError: it is gone, damaged, or another policy.
        StorageUnavailableError: the storage does not answer now.
    """
    uri, file = entry.inside(move.checkpoint).uri, entry.inside(move.checkpoint).child(POLICY_FILE)
    try:
        manifest = read_policy_manifest(uri)
        wrong = None if manifest.fingerprint == move.fingerprint else f"{uri} holds the policy {manifest.fingerprint}"
    except StorageUnavailableError:
        raise
    except CheckpointError as error:
        wrong = str(error) if file.is_file() else f"{uri} is gone"
    if wrong is None:
        return manifest
    raise CheckpointError(
        f"{entry.uri}@{move.alias} is not what was registered: {wrong.rstrip('.')}, and move {move.number} named the policy "
        f"{move.fingerprint} there. Restore the folder from a copy, roll back by 'offline rollback {entry.uri} -s "
        f"alias={move.alias}', or promote another policy."
    )


def _at(uri: str) -> tuple[str, PolicyManifest]:
    """The policy in a folder, or that which the folder of a run stands for."""
    try:
        return uri, read_policy_manifest(uri)
    except CheckpointError as error:
        if Location.of(uri).child(POLICY_FILE).is_file():
            raise
        folder = folder_at(uri)
        if folder is not None and folder.policy is not None:
            _say_what_is_taken(uri, folder.what, folder.policy)
            return folder.policy, read_policy_manifest(folder.policy)
        if (told := not_a_policy(uri)) is not None:
            raise CheckpointError(told) from error
        raise


@functools.cache
def _say_what_is_taken(uri: str, what: str, policy: str) -> None:
    """Once: a policy is looked for before a stage begins, and by the stage."""
    log.info("%s is %s: its policy %s is taken.", uri, what, policy)


def environment_for(policy: str, manifest: PolicyManifest, chosen: EnvironmentSpec | None) -> EnvironmentSpec:
    """The environment to play in: `chosen`, or the one that the policy at URI `policy` was trained in.

    Raises:
        ConfigError: neither is known.
        UnsafeDataError: the checkpoint names code that nothing allows.
    """
    environment = chosen or recorded_environment(manifest.environment, file=policy)
    if environment is None:
        raise ConfigError(
            f"Policy {policy} does not name the environment it was trained in; set the parameter 'environment'. Without one: "
            f"'offline decide DATASET {policy}', on recorded episodes."
        )
    return environment


def fingerprint_of(uri: str) -> str | None:
    """The fingerprint of the checkpoint at `uri`; None if it does not exist or is incomplete.

    Raises:
        StorageUnavailableError: the storage does not answer now.
    """
    try:
        manifest = read_policy_manifest(uri)
        weights = Location.of(uri).inside(manifest.weights_file).read()
    except StorageUnavailableError:
        raise
    except (CheckpointError, StorageError):
        return None
    return manifest.fingerprint if hashlib.sha256(weights).hexdigest() == manifest.weights_sha256 else None


def copy_policy(uri: str, manifest: PolicyManifest, folder: Location) -> str:
    """Copy the checkpoint at `uri` to a folder below `folder`, and return its name.

    The name is made of its content, so it never changes. The manifest is written last. Two writers of the
    same checkpoint write the same files.

    Raises:
        CheckpointError: The weights are not those of the manifest: damaged, or another policy has replaced them.
        StorageError: A file cannot be read or written.
    """
    weights = Location.of(uri).inside(manifest.weights_file).read()
    if hashlib.sha256(weights).hexdigest() != manifest.weights_sha256:
        raise CheckpointError(f"The weights of policy {uri} are damaged: {manifest.weights_file} does not match its SHA-256.")
    described = with_checksum(manifest.model_dump_json(indent=2))
    name = hashlib.sha256(described).hexdigest()[:16]
    copy = folder.child(name)
    copy.inside(manifest.weights_file).write(weights)
    copy.child(POLICY_FILE).write(described)
    return name
