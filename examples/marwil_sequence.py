"""Build MARWIL from connectors, as RLlib does: one more row, the next observations, GAE last; then a weighted loss.

    offline train runs/recording runs/critic -s algorithm=marwil
    offline train runs/recording runs/policy -c examples/marwil_sequence.yaml

`algorithm=marwil` computes advantages in the learner, with the present value function. Here they come from the values of
a finished policy, so prelearners can compute them once.
"""

import numpy as np
import torch

import offline_core as offline


class NextObservations:
    """Adds `new_obs` (R, …): the observation one row later. That takes one more row at the end of each episode."""

    needs_next_obs = True
    adds = ("new_obs",)

    def __call__(self, steps: offline.EpisodeBatch) -> offline.EpisodeBatch:
        return steps | {"new_obs": np.concatenate([steps["obs"][1:], steps["obs"][-1:]])}


class AdvantageWeights:
    """Adds `weights` (R,) float32: exp(β Â / scale), at most `max_weight`, with GAE(λ)'s advantage Â. Goes last.

    Arguments:
        critic: a policy with a value function, such as MARWIL's.
        scale: of advantages. A constant, so that the weight of a step does not depend on the other steps of the batch.
    """

    needs_next_obs = True  # the value after the last step is needed as well
    reads = ("rewards", "terminateds")
    adds = ("weights",)

    def __init__(
        self,
        critic: str,
        beta: float = 1.0,
        scale: float = 10.0,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        max_weight: float = 20.0,
    ) -> None:
        self.policy = offline.load_policy(critic)
        self.rate, self.gamma, self.gae_lambda, self.max_weight = beta / scale, gamma, gae_lambda, max_weight

    @torch.inference_mode()
    def __call__(self, steps: offline.EpisodeBatch) -> offline.EpisodeBatch:
        values = self.policy.values(torch.tensor(steps["obs"])).double().numpy()
        after = np.where(steps["terminateds"], 0.0, np.append(values[1:], 0.0))
        advantages = np.where(steps.is_step, steps["rewards"] + self.gamma * after - values, 0.0)
        starts, ends = steps.first[steps.last_steps], steps.last_steps
        for back in range(1, (ends - starts).max(initial=0) + 1):  # all episodes at once
            rows = (ends - back)[ends - back >= starts]
            advantages[rows] += self.gamma * self.gae_lambda * advantages[rows + 1]
        weights = np.exp(self.rate * advantages).clip(max=self.max_weight)
        return steps | {"weights": weights.astype(np.float32)}
