"""A policy on disk: a JSON manifest and a safetensors file with the weights. No pickle anywhere.

<uri>/policy.json                    written last, replaced atomically; it names the weights
<uri>/weights-<hash>.safetensors
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import safetensors
import safetensors.torch
import torch
from torch.overrides import TorchFunctionMode

from offline_core.data.datasets.manifest import Operation, Parent
from offline_core.data.episodes import space_from_json, space_to_json
from offline_core.data.store.json_files import with_checksum
from offline_core.data.store.location import Location
from offline_core.errors import (
    CheckpointError,
    ConfigError,
    LocationError,
    SpaceError,
    StorageError,
    StorageUnavailableError,
)
from offline_core.policies.decision_transformer import DecisionTransformer
from offline_core.policies.manifest import POLICY_FILE, PolicyManifest, find_policy, read_policy_manifest
from offline_core.policies.policy import Policy
from offline_core.runtime.code_permission import check_code, remember_code
from offline_core.runtime.config import EnvironmentSpec

MAX_BESIDE_WEIGHTS = 64 * 2**20
READ_ATTEMPTS = 5
"""So many reads of a checkpoint that other policies keep replacing, then an error."""

_MAKERS = frozenset({torch.empty, torch.zeros, torch.ones, torch.full})
"""The functions with which layers make their parameters."""


def save_policy(
    policy: Policy,
    uri: str,
    *,
    operation: Operation,
    environment: EnvironmentSpec | None = None,
    parents: list[Parent] | None = None,
    metrics: dict[str, float] | None = None,
) -> PolicyManifest:
    """Write a checkpoint, and replace an existing one atomically; a crash leaves the old one whole.

    Raises:
        StorageError: the folder cannot be written.
    """
    remember_code(policy.network)
    location = Location.of(uri)
    tensors = policy.state_dict().items()  # cloned, as layers of a user module may share weights
    weights = safetensors.torch.save({name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors})
    sha256 = hashlib.sha256(weights).hexdigest()
    manifest = PolicyManifest(
        network=policy.network,
        value_function=policy.value_function,
        observation_space=space_to_json(policy.observation_space),
        action_space=space_to_json(policy.action_space),
        input_columns=policy.input_columns,
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


def load_policy(uri: str | os.PathLike[str], manifest: PolicyManifest | None = None, *, allow_code: bool = False) -> Policy:
    """Load the policy of the checkpoint at `uri`, in evaluation mode.

    Arguments:
        uri: of a checkpoint, or the address of a registered one, such as `runs/registry/hvac@champion`.
        manifest: of the policy, if it was read before; an error follows if another policy has replaced it since.
        allow_code: import the user module of its network, whatever the origin of the checkpoint; see `code_permission`.

    Raises:
        CheckpointError: it does not exist, the weights are damaged, they do not fit the network or its spaces, or
            other policies keep replacing it.
        StorageUnavailableError: the storage does not answer now.
        UnsafeDataError: its network is a user module that nothing allows.
    """
    uri, attempts = os.fspath(uri), 1
    if manifest is None:
        address, (uri, manifest) = uri, find_policy(uri)
        attempts = READ_ATTEMPTS if uri == address else 1  # a registered one is never replaced
    while (weights := _weights(uri, manifest, allow_code=allow_code)) is None:
        attempts -= 1
        if not attempts:
            raise CheckpointError(
                f"The weights of policy {uri} are missing: other policies replaced it while it was read. "
                "Read it again when nothing is writing there."
            )
        manifest = read_policy_manifest(uri)
    if hashlib.sha256(weights).hexdigest() != manifest.weights_sha256:
        raise CheckpointError(
            f"The weights of policy {uri} are damaged: {manifest.weights_file} does not match its SHA-256 in {POLICY_FILE}."
        )
    try:
        tensors = safetensors.torch.load(weights)
        action_space = space_from_json(manifest.action_space)
        if gym.spaces.flatdim(action_space) > len(weights):  # each part needs at least one weight
            raise RuntimeError(f"the action space {manifest.action_space.get('space')} has more parts than weights")
        with AtMost(MAX_BESIDE_WEIGHTS + 2 * len(weights)):  # the JSON may name any sizes
            kind = Policy if manifest.network.transformer is None else DecisionTransformer
            policy = kind(
                space_from_json(manifest.observation_space),
                action_space,
                manifest.network,
                value_function=manifest.value_function,
            )
        policy.load_state_dict(tensors)
        policy.input_columns, policy.uri = manifest.input_columns, uri
    except (SpaceError, ConfigError) as error:
        raise CheckpointError(f"Policy {uri} cannot be built: {error}") from error
    except (RuntimeError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"The weights of policy {uri} do not fit its network {manifest.network!r}: {error}") from error
    return policy.eval()


def _weights(uri: str, manifest: PolicyManifest, *, allow_code: bool) -> bytes | None:
    """The file of weights that the manifest names; None if another policy has replaced it since."""
    if manifest.network.module is not None and not allow_code:
        file = Location.of(uri).child(POLICY_FILE).uri
        check_code(manifest.network.module, file=file, instead="load it with allow_code=True")
    try:
        return Location.of(uri).inside(manifest.weights_file).read()
    except StorageUnavailableError:
        raise
    except LocationError as error:
        raise CheckpointError(f"The weights of policy {uri} are not read: {error}") from error
    except StorageError as error:
        if read_policy_manifest(uri).weights_file != manifest.weights_file:
            return None
        raise CheckpointError(f"The weights of policy {uri} are missing: {error}") from error


class AtMost(TorchFunctionMode):
    """Limits the memory of modules whose sizes a file names.

    Inside the block, tensors of so many bytes in all can be made from sizes; the next one is a RuntimeError.
    """

    def __init__(self, allowed_bytes: int) -> None:
        super().__init__()
        self._left = allowed_bytes

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _MAKERS:
            size = kwargs.get("size", args[0] if args and isinstance(args[0], Sequence) else args)
            dtype = kwargs.get("dtype") or torch.get_default_dtype()
            self._left -= math.prod(map(int, size)) * dtype.itemsize
            if self._left < 0:
                raise RuntimeError(f"a tensor of shape {tuple(size)} is larger than all of the weights")
        return func(*args, **kwargs)
