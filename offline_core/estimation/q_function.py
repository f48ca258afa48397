"""What actions are worth: the function that fitted Q evaluation fits."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from offline_core.episodes import nested
from offline_core.estimation.clock import Clock
from offline_core.policies.categorical import CategoricalHead
from offline_core.policies.config import NetworkConfig
from offline_core.policies.encoder import Encoder
from offline_core.policies.head import Head
from offline_core.policies.layers import ACTIVATIONS, make_layers
from offline_core.policies.policy import Policy


class QFunction(nn.Module):
    """Q(s, a), and V(s): its mean over the policy's actions, exact for a Discrete space and of samples for all others.

    Arguments:
        policy: the one to be evaluated.
        network: layers.
        center, scale: what it makes of nothing, and the unit it computes in; of the returns that were recorded, say.
        explore: the policy that samples; otherwise the one that takes the most likely action.
        action_samples: how many actions a mean is of.
        clock: of a fixed horizon; what is told then is of the steps that remain.
    """

    def __init__(
        self,
        policy: Policy,
        network: NetworkConfig,
        *,
        center: float,
        scale: float,
        explore: bool,
        action_samples: int,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self.center, self.scale, self.explore, self.samples = center, scale, explore, action_samples
        self.clock = clock
        self._head = (policy.head,)  # in a tuple: none of its weights are learned here
        network = network.model_copy(update={"image_layout": policy.network.image_layout})  # the images are the same
        self.encoder = Encoder(
            policy.observation_space, normalize=network.normalize_observations, image_layout=network.image_layout
        )
        self.hidden, features = make_layers(self.encoder, network)
        self.listed = isinstance(self.head, CategoricalHead) and len(self.head.sizes) == 1
        """All actions are valued at once."""
        beside = clock.size if clock else 0
        if not self.listed:
            self.actions = Encoder(policy.action_space, normalize=True)
            beside += self.actions.size
        values = self.head.inputs_size if self.listed else 1
        if not beside:
            self.last: nn.Module = nn.Linear(features, values)
        else:  # one more layer, that sees them and the features together
            joined = nn.Linear(features + beside, features + beside if clock else max(features, 1))
            self.last = nn.Sequential(joined, ACTIVATIONS[network.activation](), nn.Linear(joined.out_features, values))

    @property
    def head(self) -> Head:
        """The policy's."""
        return self._head[0]

    def features(self, observations: nested.Nested, *, frames: int, remaining: Tensor) -> Tensor:
        """(B, …), or (B, frames, …) → (B, features), and those of the clock, to which (B,) steps remain."""
        found: Tensor = self.hidden(self.encoder(observations, axes=2 if frames > 1 else 1))
        return torch.cat([found, self.clock(remaining)], dim=1) if self.clock else found

    def q(self, features: Tensor, actions: nested.Nested) -> Tensor:
        """(B,) of nested actions (B, …)."""
        if self.listed:
            assert isinstance(self.head, CategoricalHead)
            taken = actions.reshape(len(features), 1).long() - self.head.starts
            return self._units(self.last(features).gather(1, taken).squeeze(1), features)
        return self._units(self.last(torch.cat([features, self.actions(actions)], dim=1)).squeeze(1), features)

    def v(self, features: Tensor, inputs: Tensor, generator: Generator) -> Tensor:
        """(B,), for distribution inputs (B, inputs) of the policy."""
        if self.listed:
            chances = inputs.softmax(1) if self.explore else functional.one_hot(inputs.argmax(1), inputs.shape[1]).float()
            return self._units((chances * self.last(features)).sum(1), features)
        if not self.explore:
            return self.q(features, self.head.mode(inputs))
        drawn = (self.head.sample(inputs, generator) for _ in range(self.samples))
        return torch.stack([self.q(features, actions) for actions in drawn]).mean(0)

    def _units(self, numbers: Tensor, features: Tensor) -> Tensor:
        values = self.center + self.scale * numbers
        return values * features[:, -1] if self.clock else values
