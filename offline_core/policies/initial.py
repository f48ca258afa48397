"""An initial policy: a checkpoint whose weights a training begins with."""

from __future__ import annotations

from offline_core.data.datasets.manifest import Parent
from offline_core.errors import ConfigError
from offline_core.policies.config import NetworkConfig
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.policy import Policy


def initial_parents(uri: str | None, manifest: PolicyManifest | None) -> list[Parent]:
    """Return the checkpoint as the parent of what it begins; none if there is none."""
    return [] if uri is None or manifest is None else [manifest.parent_entry(uri)]


def check_network(uri: str, own: NetworkConfig, given: NetworkConfig) -> None:
    """Check that a network is that of the initial policy at `uri`.

    Raises:
        ConfigError: It is another one; the message names what differs.
    """
    differing = [name for name in NetworkConfig.model_fields if getattr(own, name) != getattr(given, name)]
    if differing:
        values = ", ".join(f"{name} is {getattr(own, name)!r} there and {getattr(given, name)!r} here" for name in differing)
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
