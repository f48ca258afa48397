"""What actions are worth: the function that fitted Q evaluation fits."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from offline_core.data.episodes import nested
from offline_core.judging.estimation.target import TargetPolicy
from offline_core.policies.categorical import CategoricalHead
from offline_core.policies.config import NetworkConfig
from offline_core.policies.encoder import Encoder
from offline_core.policies.head import Head
from offline_core.policies.layers import ACTIVATIONS, make_layers

KNOTS = 32


class RemainingSteps(nn.Module):
    """Features of the steps that remain until the horizon: what an action is worth there depends on them.

    The last feature is the share of the discounts that are still to come: Σ γ^t over what remains, divided by that over the
    horizon. A value is about proportional to it, and 0 where nothing remains. The others say where on a row of `KNOTS` knots
    the step is, by linear interpolation between two of them. Up to that many steps, each has a knot of its own.

    Arguments:
        horizon: steps in all.
        gamma: the discount a step.
    """

    def __init__(self, horizon: int, gamma: float) -> None:
        super().__init__()
        self.horizon, self.gamma = horizon, gamma
        self.knots = min(horizon, KNOTS)
        self.size = self.knots + 1

    def forward(self, remaining: Tensor) -> Tensor:
        """Features of the steps that remain: (B,) → (B, size) float32."""
        remaining = remaining.double()
        position = (remaining - 1) * ((self.knots - 1) / max(1, self.horizon - 1))
        near = (1 - (position[:, None] - torch.arange(self.knots)).abs()).clamp(min=0)
        return torch.cat([near, self.share(remaining)[:, None]], dim=1).float()

    def share(self, remaining: Tensor) -> Tensor:
        """The share of the discounts that are still to come, (B,) float64."""
        if self.gamma == 1:
            return remaining / self.horizon
        return (1 - self.gamma**remaining) / (1 - self.gamma**self.horizon)


class QFunction(nn.Module):
    """Q(s, a), or its mean over several actions: V(s) for those of a policy.

    Actions are weights (B, A) of all that a Discrete space has, else S of them for each observation: nested (B, S, …).

    Arguments:
        policy: one to be evaluated, for its spaces and frames.
        network: layers.
        center, scale: what it makes of nothing, and the unit it computes in; of the returns that were recorded, say.
        horizon: steps that count; what is told then is of those that remain. None: all until the episode terminates.
        gamma: the discount a step.
    """

    def __init__(
        self,
        policy: TargetPolicy,
        network: NetworkConfig,
        *,
        center: float,
        scale: float,
        horizon: int | None = None,
        gamma: float = 1.0,
    ) -> None:
        super().__init__()
        self.center, self.scale = center, scale
        self.clock = None if horizon is None else RemainingSteps(horizon, gamma)
        network = network.model_copy(update={"image_layout": policy.network.image_layout, "frames": policy.network.frames})
        self.frames = network.frames
        self.encoder = Encoder(
            policy.observation_space, normalize=network.normalize_observations, image_layout=network.image_layout
        )
        self.hidden, features = make_layers(self.encoder, network)
        self.listed = is_listed(policy.head)
        """Whether all actions are valued at once."""
        extra = self.clock.size if self.clock else 0
        if not self.listed:
            self.actions = Encoder(policy.action_space, normalize=True)
            extra += self.actions.size
        values = policy.head.inputs_size if self.listed else 1
        if not extra:
            self.last: nn.Module = nn.Linear(features, values)
        else:  # one more layer, that sees them and the features together
            joined = nn.Linear(features + extra, features + extra if self.clock else max(features, 1))
            self.last = nn.Sequential(joined, ACTIVATIONS[network.activation](), nn.Linear(joined.out_features, values))

    def forward(self, observations: nested.Nested, remaining: Tensor, actions: nested.Nested) -> Tensor:
        """Observations (B, …) or (B, frames, …), steps that remain (B,), and actions → (B,)."""
        features: Tensor = self.hidden(self.encoder(observations, axes=2 if self.frames > 1 else 1))
        if self.clock:
            features = torch.cat([features, self.clock(remaining)], dim=1)
        if self.listed:
            numbers: Tensor = (actions * self.last(features)).sum(dim=1)
        else:
            encoded = self.actions(actions, axes=2)
            repeated = features[:, None].expand(-1, encoded.shape[1], -1)
            numbers = self.last(torch.cat([repeated, encoded], dim=2)).squeeze(2).mean(dim=1)
        values: Tensor = self.center + self.scale * numbers
        return values * features[:, -1] if self.clock else values


def is_listed(head: Head) -> bool:
    """Whether the actions of a head are the numbers of a list."""
    return isinstance(head, CategoricalHead) and len(head.sizes) == 1


def taken(head: Head, actions: nested.Nested) -> nested.Nested:
    """Recorded actions (B, …) as a `QFunction` takes them."""
    if not is_listed(head):
        return nested.map_leaves(lambda leaf: leaf[:, None], actions)
    assert isinstance(head, CategoricalHead)
    return functional.one_hot(actions.reshape(len(actions)).long() - head.starts, head.sizes[0]).float()


def chosen(head: Head, inputs: Tensor, *, explore: bool, samples: int, generator: Generator) -> nested.Nested:
    """A policy's actions for its distribution inputs (B, inputs) as a `QFunction` takes them.

    Arguments:
        explore: of the policy that samples; otherwise of the one that takes the most likely action.
        samples: actions of each; of a list all count, by their probability.
    """
    if is_listed(head):
        return inputs.softmax(1) if explore else functional.one_hot(inputs.argmax(1), inputs.shape[1]).float()
    if not explore:
        return nested.map_leaves(lambda leaf: leaf[:, None], head.mode(inputs))
    drawn = head.sample(inputs.repeat_interleave(samples, dim=0), generator)
    return nested.map_leaves(lambda leaf: leaf.unflatten(0, (len(inputs), samples)), drawn)
