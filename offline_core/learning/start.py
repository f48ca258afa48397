"""The earlier policy that a training begins at, `initial_policy`: which it is, without its weights."""

from __future__ import annotations

from typing import Any

from offline_core.data.datasets.manifest import Parent
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.learning.config import TrainingConfig
from offline_core.policies.config import NetworkConfig
from offline_core.policies.manifest import PolicyManifest, find_policy
from offline_core.policies.series import SERIES

_OF_ALGORITHMS = {"imitation_threshold": None, "transformer": None}
"""Parts of a network that only algorithms may set."""


def read_initial(config: TrainingConfig, output: str) -> tuple[TrainingConfig, PolicyManifest | None]:
    """Return the parameters with the checkpoint that `initial_policy` names, and its manifest; None if there is none.

    Raises:
        CheckpointError: It is not a checkpoint.
        ConfigError: The training would replace it.
    """
    if config.initial_policy is None:
        return config, None
    uri, manifest = find_policy(config.initial_policy)
    folder, place = Location.of(output).uri, Location.of(uri).uri
    if place.removeprefix(f"{folder}/").partition("/")[0] in ("best", "last", SERIES):
        raise ConfigError(
            f"The training would replace initial_policy {uri}, as its output is {output}: give it another output."
        )
    return config.model_copy(update={"initial_policy": uri}), manifest


def with_initial_network(config: TrainingConfig, initial: PolicyManifest | None) -> TrainingConfig:
    """Return the parameters with the network of the initial policy, and the returns of dt, unless they name others."""
    if initial is None:
        return config
    changes: dict[str, Any] = {}
    if config.network == NetworkConfig():
        changes["network"] = initial.network.model_copy(update=_OF_ALGORITHMS)
    if config.algorithm == "dt" and (layers := initial.network.transformer) is not None:
        returns = {
            name: getattr(layers, name) for name in ("target_return", "return_scale") if getattr(config.dt, name) is None
        }
        changes["dt"] = config.dt.model_copy(update=returns)
    return config.model_copy(update=changes)


def initial_parents(uri: str | None, manifest: PolicyManifest | None) -> list[Parent]:
    """Return the checkpoint as the parent of what it begins; none if there is none."""
    return [] if uri is None or manifest is None else [manifest.parent_entry(uri)]
