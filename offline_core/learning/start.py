"""The first weights of a training that begins at an earlier policy, `initial_policy`."""

from __future__ import annotations

from typing import Any

from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.learning.config import TrainingConfig
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.initial import check_network
from offline_core.policies.manifest import PolicyManifest, find_policy
from offline_core.policies.policy import Policy
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


def load_initial(
    uri: str, manifest: PolicyManifest, policy: Policy, dataset: str, inputs: InputColumns | None = None
) -> Policy:
    """Return the initial policy, which has to fit the policy that is to be trained from `dataset`.

    Raises:
        CheckpointError: It is not a checkpoint, or not that of the manifest any more.
        ConfigError: It has other spaces, another network, or observations made in another way (`inputs`).
    """
    initial = load_policy(uri, manifest)
    check_network(uri, initial.network, policy.network)
    if initial.action_space != policy.action_space:
        raise ConfigError(
            f"initial_policy {uri} has the action space {initial.action_space}, {dataset} has {policy.action_space}, "
            "and bounds are the units of actions. Begin with a policy of the same space, or import with this action_space."
        )
    try:
        initial.check_spaces(dataset, (policy.observation_space, policy.action_space))
    except ConfigError as error:
        raise ConfigError(f"initial_policy {uri} has other spaces than {dataset}: {error}") from error
    if inputs is not None and initial.input_columns is not None and (found := initial.input_columns.differences(inputs)):
        raise ConfigError(f"initial_policy {uri} and {dataset} make observations or actions in different ways: {found}.")
    return initial
