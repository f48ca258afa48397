"""A policy on disk: a JSON file that says everything, and a safetensors file with the weights. No pickle anywhere.

<uri>/policy.json                    written last, replaced at once: the checkpoint is what it names
<uri>/weights-<hash>.safetensors
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any, Literal

import gymnasium as gym
import safetensors
import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from offline_core.code_permission import check_code, remember_code
from offline_core.config import EnvironmentSpec
from offline_core.episodes import space_from_json, space_to_json
from offline_core.errors import (
    CheckpointError,
    ConfigError,
    CorruptFileError,
    LocationError,
    SpaceError,
    StorageError,
    StorageUnavailableError,
)
from offline_core.policies.bounded import AtMost
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.provenance import provenance
from offline_core.storage.json_files import reason_of, with_checksum, without_checksum
from offline_core.storage.location import Location
from offline_core.storage.manifest import Operation, Parent

POLICY_FILE = "policy.json"
READS: Literal[1] = 1
"""The format of checkpoints that is written here, and can be read."""
MAX_BESIDE_WEIGHTS = 64 * 2**20


class PolicyManifest(BaseModel):
    """What a checkpoint is and where it comes from."""

    # Metrics may be NaN, and arguments of an environment infinite: JSON's null could not be read back.
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")

    checkpoint_version: Literal[1] = READS
    network: NetworkConfig
    value_function: bool
    observation_space: dict[str, Any]
    action_space: dict[str, Any]
    environment: EnvironmentSpec | None = None
    operation: Operation
    parents: list[Parent] = []
    metrics: dict[str, float] = {}
    weights_file: str
    weights_sha256: str
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    provenance: dict[str, str] = Field(default_factory=provenance)

    @property
    def fingerprint(self) -> str:
        """Identifies the weights: 16 hex digits of their SHA-256."""
        return self.weights_sha256[:16]

    def parent_entry(self, uri: str) -> Parent:
        """This checkpoint as a parent of what is made with it."""
        return Parent(kind="checkpoint", uri=Location.of(uri).uri, fingerprint=self.fingerprint)


def save_policy(
    policy: Policy,
    uri: str,
    *,
    operation: Operation,
    environment: EnvironmentSpec | None = None,
    parents: list[Parent] | None = None,
    metrics: dict[str, float] | None = None,
) -> PolicyManifest:
    """Writes a checkpoint, replacing the one that may be there at once; a crash leaves the old one whole.

    Raises:
        StorageError: the place cannot be written.
    """
    remember_code(policy.network)
    location = Location.of(uri)
    tensors = policy.state_dict().items()  # cloned, as a module of the user's may share weights among its layers
    weights = safetensors.torch.save({name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors})
    sha256 = hashlib.sha256(weights).hexdigest()
    manifest = PolicyManifest(
        network=policy.network,
        value_function=policy.value_function,
        observation_space=space_to_json(policy.observation_space),
        action_space=space_to_json(policy.action_space),
        environment=environment,
        operation=operation,
        parents=parents or [],
        metrics=metrics or {},
        weights_file=f"weights-{sha256[:12]}.safetensors",
        weights_sha256=sha256,
    )
    old = [name for name in location.files(recursive=False) if name.startswith("weights-") and name != manifest.weights_file]
    location.child(manifest.weights_file).write(weights)
    location.child(POLICY_FILE).write(with_checksum(manifest.model_dump_json(indent=2)))
    for name in old:
        location.child(name).delete()
    return manifest


def read_policy_manifest(uri: str) -> PolicyManifest:
    """What `policy.json` says, without loading weights.

    Raises:
        CheckpointError: there is none, or it cannot be read.
        StorageUnavailableError: it cannot be read now.
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


def fingerprint_of(uri: str) -> str | None:
    """The fingerprint of the checkpoint at `uri`; None if there is none, or not a whole one.

    Raises:
        StorageUnavailableError: it cannot be seen now.
    """
    try:
        manifest = read_policy_manifest(uri)
        weights = Location.of(uri).inside(manifest.weights_file).read()
    except StorageUnavailableError:
        raise
    except (CheckpointError, StorageError):
        return None
    return manifest.fingerprint if hashlib.sha256(weights).hexdigest() == manifest.weights_sha256 else None


def load_policy(uri: str, manifest: PolicyManifest | None = None, *, allow_code: bool = False) -> Policy:
    """The policy at `uri`, in evaluation mode.

    Arguments:
        manifest: what was read of it before; then it is that very policy, and an error if another has taken its place.
        allow_code: import the module of its network, wherever the policy comes from; see `offline_core.code_permission`.

    Raises:
        CheckpointError: there is none, the weights are damaged, or they do not fit the network or its spaces.
        StorageUnavailableError: it cannot be read now.
        UnsafeDataError: its network is a module of code, which nothing allows.
    """
    manifest = manifest or read_policy_manifest(uri)
    if manifest.network.module is not None and not allow_code:
        file = Location.of(uri).child(POLICY_FILE).uri
        check_code(manifest.network.module, file=file, instead="load it with allow_code=True")
    try:
        weights = Location.of(uri).inside(manifest.weights_file).read()
    except StorageUnavailableError:
        raise
    except LocationError as error:
        raise CheckpointError(f"The weights of policy {uri} are not read: {error}") from error
    except StorageError as error:
        raise CheckpointError(f"The weights of policy {uri} are gone: {error}") from error
    if hashlib.sha256(weights).hexdigest() != manifest.weights_sha256:
        raise CheckpointError(
            f"The weights of policy {uri} are not the ones it was saved with: {manifest.weights_file} is damaged."
        )
    try:
        tensors = safetensors.torch.load(weights)
        action_space = space_from_json(manifest.action_space)
        if gym.spaces.flatdim(action_space) > len(weights):  # each has a weight at least
            raise RuntimeError(f"the action space {manifest.action_space.get('space')} has more parts than there are weights")
        with AtMost(MAX_BESIDE_WEIGHTS + 2 * len(weights)):  # whatever sizes its JSON names
            policy = Policy(
                space_from_json(manifest.observation_space),
                action_space,
                manifest.network,
                value_function=manifest.value_function,
            )
        policy.load_state_dict(tensors)
    except (SpaceError, ConfigError) as error:
        raise CheckpointError(f"Policy {uri} cannot be made here: {error}") from error
    except (RuntimeError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"The weights of policy {uri} do not fit its network {manifest.network!r}: {error}") from error
    return policy.eval()
