"""MARWIL as a sequence of connectors, as RLlib has it: one step more, the next observations, GAE last; then a loss.

    offline train runs/recording runs/critic -s algorithm=marwil
    offline train runs/recording runs/policy -c examples/marwil_sequence.yaml

Ours (`algorithm=marwil`) computes advantages in the learner, with the value function as it is now; here they come from
that of a finished policy, and so can be computed by prelearners, once.
"""

import numpy as np
import torch

from offline_core.learning.returns import steps_left, value_targets
from offline_core.learning.steps import Steps
from offline_core.policies.checkpoint import fingerprint_of, load_policy
from offline_core.prelearner.layout import IS_STEP, STARTS, Columns


class NextObservations:
    """Adds `new_obs` (R, …): the observation a row later. That takes one row more at the end of each episode."""

    looks_ahead = True
    adds = ("new_obs",)

    def __call__(self, steps: Columns) -> Columns:
        return steps | {"new_obs": np.concatenate([steps["obs"][1:], steps["obs"][-1:]])}


class AdvantageWeights:
    """Adds `weights` (R,) float32: exp(β Â / scale), at most `max_weight`, with GAE(λ)'s advantage Â. Goes last.

    Arguments:
        critic: URI of a policy with a value function, such as MARWIL leaves.
        scale: of advantages. A number, for what a step weighs may not depend on which others are looked at with it.
    """

    looks_ahead = True  # a value is asked of what comes after the last step as well
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
        self.policy = load_policy(critic)
        self.fingerprint = fingerprint_of(critic)  # another critic makes another policy
        self.rate, self.gamma, self.gae_lambda, self.max_weight = beta / scale, gamma, gae_lambda, max_weight

    @torch.inference_mode()
    def __call__(self, steps: Columns) -> Columns:
        rows = Steps({}, starts=torch.tensor(steps[STARTS]), is_step=torch.tensor(steps[IS_STEP]))
        values = self.policy.values(torch.tensor(steps["obs"]))
        targets = value_targets(
            torch.tensor(steps["rewards"]),
            values,
            steps_left(rows),
            terminated=torch.tensor(steps["terminateds"]),
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
        )
        weights = (self.rate * (targets - values)).exp().clamp(max=self.max_weight)
        return steps | {"weights": weights.float().numpy()}
