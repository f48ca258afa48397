"""The weights of an initial policy, a checkpoint that a training begins with."""

from __future__ import annotations

from offline_core.data.inputs.input_columns import InputColumns
from offline_core.errors import ConfigError
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.policy import Policy


def check_network(uri: str, own: NetworkConfig, network: NetworkConfig) -> None:
    """Check that a network is that of the initial policy at `uri`.

    Raises:
        ConfigError: It is another one; the message names what differs.
    """
    kept = NetworkConfig.model_fields.keys() - {"orthogonal_weights"}  # weights that it has begin as neither
    differing = [name for name in NetworkConfig.model_fields if name in kept and getattr(own, name) != getattr(network, name)]
    if differing:
        values = ", ".join(f"{name} is {getattr(own, name)!r} there and {getattr(network, name)!r} here" for name in differing)
        raise ConfigError(
            f"The network is that of initial_policy {uri}, and {values}: leave 'network' as it is. If the algorithm sets this, "
            "begin with a policy that it trained."
        )


def begin_as(policy: Policy, initial: Policy) -> None:
    """Give `policy` the weights, the observation filter and the input columns of `initial`, which has the same network.

    A value function that only one of them has is left out: a policy keeps its own.
    """
    policy.input_columns = initial.input_columns
    own = policy.state_dict()
    policy.load_state_dict(own | {name: tensor for name, tensor in initial.state_dict().items() if name in own})


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
    if inputs is not None and initial.input_columns is not None and (difference := initial.input_columns.differences(inputs)):
        raise ConfigError(f"initial_policy {uri} and {dataset} make observations or actions in different ways: {difference}.")
    return initial
