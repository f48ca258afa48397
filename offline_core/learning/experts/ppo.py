"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347): the loss, and the update of one rollout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import optree
import torch
from torch import Tensor, nn

from offline_core.data.episodes import nested
from offline_core.data.episodes.nested import Nested
from offline_core.errors import LearningError
from offline_core.learning.experts.config import PPOConfig
from offline_core.learning.experts.rollout import Rollout
from offline_core.learning.optimizer import share_of_rate
from offline_core.policies.policy import Policy
from offline_core.runtime.adam import Adam


class Batch(NamedTuple):
    """B steps, in any order."""

    observations: Nested
    """(B, …)."""
    actions: Tensor
    """(B, *action shape)."""
    log_probs: Tensor
    """(B,), under the policy that chose the actions."""
    advantages: Tensor
    """(B,), mean 0 and standard deviation 1 over the rollout."""
    returns: Tensor
    """(B,), targets of the value function."""
    values: Tensor
    """(B,), of the value function before the update."""


class Losses(NamedTuple):
    """Scalars of one minibatch."""

    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    approx_kl: Tensor
    """From the policy that played to the present one: mean of r - 1 - log r (Schulman 2020, "Approximating KL Divergence")."""


class PPO:
    """Improves one policy in place, one rollout at a time."""

    def __init__(self, policy: Policy, config: PPOConfig, *, seed: int) -> None:
        self.policy = policy
        self.config = config
        self.updates = 0
        self.generator = torch.Generator().manual_seed(seed)
        self._parameters = FlatParameters(policy)
        self.optimizer = Adam([self._parameters.vector], lr=config.learning_rate, eps=1e-5)

    def update(self, rollout: Rollout, *, done: float = 0.0) -> dict[str, float]:
        """Learn `num_epochs` times from each step of the rollout; return the mean of each of the `Losses`.

        Arguments:
            done: share of the training; the learning rate follows it.

        Raises:
            LearningError: a loss or a gradient is NaN or infinite.
        """
        self.updates += 1
        batch = make_batch(self.policy, rollout, gamma=self.config.gamma, gae_lambda=self.config.gae_lambda)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate * share_of_rate(self.config.schedule, done)
        history = []
        for part in minibatches(batch, self.config, self.generator):
            losses, gradient_norm = self._step(part)
            history.append(torch.stack([*losses, gradient_norm]))
        means = torch.stack(history).mean(dim=0)
        if not means.isfinite().all():
            raise LearningError(
                f"Update {self.updates} of the expert: a loss or gradient is NaN or infinite: "
                f"{dict(zip(Losses._fields, means.tolist(), strict=False))}. Try a lower ppo.learning_rate than "
                f"{self.config.learning_rate:g}, and check that the environment's observations and rewards are finite."
            )
        return dict(zip(Losses._fields, means.tolist(), strict=False))

    def _step(self, batch: Batch) -> tuple[Losses, Tensor]:
        config = self.config
        losses = ppo_losses(self.policy, batch, clip_range=config.clip_range, value_clip_range=config.value_clip_range)
        total = losses.policy_loss + config.value_coefficient * losses.value_loss
        if config.entropy_coefficient:
            total = total - config.entropy_coefficient * losses.entropy
        self._parameters.zero_grad()
        total.backward()
        norm = self._parameters.clip(config.max_gradient_norm)
        self.optimizer.step()
        return Losses(*(loss.detach() for loss in losses)), norm


def minibatches(batch: Batch, config: PPOConfig, generator: torch.Generator) -> Iterator[Batch]:
    """All steps in another order in each of `num_epochs`, in equal parts of `minibatch_size` at most."""
    parts = -(-len(batch.returns) // config.minibatch_size)
    leaves, structure = optree.tree_flatten(cast(Any, batch))
    for _ in range(config.num_epochs):
        order = torch.randperm(len(batch.returns), generator=generator)
        for part in zip(*(leaf.index_select(0, order).chunk(parts) for leaf in leaves), strict=True):
            yield cast(Batch, optree.tree_unflatten(structure, part))


def ppo_losses(policy: Policy, batch: Batch, *, clip_range: float, value_clip_range: float | None = None) -> Losses:
    """The clipped surrogate (equation 7), the value function's squared error, the entropy, and the KL divergence.

    With `value_clip_range`, the error is the larger one of the value and of the value no further than that from the old one
    (the authors' code; Engstrom et al. 2020, arXiv 2005.12729).
    """
    inputs, values = policy.inputs_and_values(batch.observations)
    log_ratio = policy.head.log_prob(inputs, batch.actions) - batch.log_probs
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    errors = (values - batch.returns).square()
    if value_clip_range is not None:
        near = batch.values + (values - batch.values).clamp(-value_clip_range, value_clip_range)
        errors = errors.maximum((near - batch.returns).square())
    return Losses(
        policy_loss=-torch.minimum(ratio * batch.advantages, clipped * batch.advantages).mean(),
        value_loss=errors.mean(),
        entropy=policy.head.entropy(inputs).mean(),
        approx_kl=(ratio - 1 - log_ratio).detach().mean(),
    )


@torch.no_grad()
def make_batch(policy: Policy, rollout: Rollout, *, gamma: float, gae_lambda: float) -> Batch:
    """The rollout's B ≤ T·N steps, without resets; by the policy as it is, which has to be as it was when it played."""
    shape = rollout.rewards.shape
    inputs, flat_values = policy.inputs_and_values(rollout.flat_observations)
    values = flat_values.reshape(-1, shape[1])
    log_probs = policy.head.log_prob(inputs[: shape.numel()], rollout.actions.flatten(0, 1)).reshape(shape)
    advantage = advantages(
        rollout.rewards, values, terminated=rollout.terminated, truncated=rollout.truncated, gamma=gamma, gae_lambda=gae_lambda
    )
    observations = nested.map_leaves(lambda leaf: leaf[:-1], rollout.observations)
    everything = Batch(observations, rollout.actions, log_probs, advantage, advantage + values[:-1], values[:-1])
    batch: Batch = nested.map_leaves(lambda leaf: leaf[rollout.is_step], everything)
    centered = batch.advantages - batch.advantages.mean()
    return batch._replace(advantages=centered / (batch.advantages.std(correction=0) + 1e-8))


class FlatParameters:
    """Makes the trained parameters of a module views of one vector, and their gradients views of another.

    A step of an optimiser costs as much for one tensor as for each of many.

    The module is used as before. Its gradients must be cleared by `zero_grad` of this class alone: `Module.zero_grad` would
    take them out of the vector.

    Arguments:
        module: on one device, all parameters of one type.
    """

    def __init__(self, module: nn.Module) -> None:
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.vector = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
        """(P,)."""
        self.gradient: Tensor = torch.zeros_like(self.vector)
        """(P,), which `vector.grad` is."""
        self.vector.grad = self.gradient
        begin = 0
        for parameter in parameters:
            end = begin + parameter.numel()
            parameter.data = self.vector.data[begin:end].view_as(parameter)
            parameter.grad = self.gradient[begin:end].view_as(parameter)
            begin = end

    def zero_grad(self) -> None:
        """Clear the gradients."""
        self.gradient.zero_()

    @torch.no_grad()
    def clip(self, max_norm: float) -> Tensor:
        """Scale the gradient down to this length if it is longer; return its length before, ()."""
        norm: Tensor = torch.linalg.vector_norm(self.gradient)
        self.gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm


@torch.no_grad()
def advantages(
    rewards: Tensor, values: Tensor, *, terminated: Tensor, truncated: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    """How much better each action was than the value function expected: (T, N), for T steps of N copies.

    This is generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438).

    After a termination the value is zero. After a truncation, or the last step of an open episode, it is the value of the
    last observation. Advantages never cross the end of an episode. Steps that only reset a copy (gymnasium's NEXT_STEP
    autoreset) have meaningless advantages, and do not change those of other steps.

    Arguments:
        rewards: (T, N).
        values: (T + 1, N), of the observation before each step and after the last; after a step that ended an episode,
            of the observation it ended with.
        terminated, truncated: (T, N), bool.
    """
    deltas = rewards + gamma * values[1:] * ~terminated - values[:-1]
    decays = gamma * gae_lambda * ~(terminated | truncated)
    result = torch.empty_like(deltas)
    running = torch.zeros_like(deltas[0])
    for t in reversed(range(len(deltas))):
        running = torch.addcmul(deltas[t], decays[t], running, out=result[t])
    return result
