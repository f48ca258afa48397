"""The losses of MARWIL and PPO are RLlib's on the same batch with the same networks, where the formulas agree.

RLlib's loss functions are called on stand-ins for its modules that answer with our networks; nothing of Ray is started.
"""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from offline_core.learning.algorithms.bc import BC
from offline_core.learning.algorithms.marwil import MARWIL
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.algorithms.ppo import PPO
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy

if any(importlib.util.find_spec(name) is None for name in ("ray", "tree", "scipy")):
    pytest.skip("RLlib needs the 'interop' extra: pip install -e '.[interop]'", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore")  # RLlib's own

VECTOR = gym.spaces.Box(-np.inf, np.inf, (3,))
SPACES: dict[str, gym.Space[Any]] = {"discrete": gym.spaces.Discrete(4), "box": gym.spaces.Box(-np.inf, np.inf, (2,))}
STEPS = 64


def rllib_learner(policy: Policy, config: Any, **attributes: Any) -> tuple[Any, dict[str, Any]]:
    """(a stand-in for `self`, what it logged so far)."""
    from ray.rllib.core.distribution.torch.torch_distribution import TorchCategorical, TorchDiagGaussian

    distribution = TorchCategorical if isinstance(policy.action_space, gym.spaces.Discrete) else TorchDiagGaussian
    module = SimpleNamespace(
        get_train_action_dist_cls=lambda: distribution,
        get_exploration_action_dist_cls=lambda: distribution,
        compute_values=lambda batch, embeddings=None: policy.values(batch["obs"]),
    )
    logged: dict[str, Any] = {}
    metrics = SimpleNamespace(
        log_dict=lambda values, **_: logged.update(values), log_value=lambda key, value, **_: logged.update({key[1]: value})
    )
    wrapped = {"p": SimpleNamespace(unwrapped=lambda: module)}
    return SimpleNamespace(module=wrapped, metrics=metrics, config=config, **attributes), logged


def made_batch(policy: Policy) -> dict[str, Tensor]:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(STEPS, 3)).astype(np.float32)
    played = policy.choose(obs, explore=True, generator=torch.Generator().manual_seed(0))
    return {
        "obs": torch.from_numpy(obs),
        "actions": torch.from_numpy(played.actions),
        "value_targets": torch.from_numpy((rng.normal(size=STEPS) * 5).astype(np.float32)),
        "advantages": torch.from_numpy(rng.normal(size=STEPS).astype(np.float32)),
    }


def gradients(loss: Tensor, policy: Policy) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(policy.parameters())))


def assert_same_gradients(ours: Tensor, theirs: Tensor, policy: Policy) -> None:
    for found, expected in zip(gradients(ours, policy), gradients(theirs, policy), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("share_layers", [False, True])
@pytest.mark.parametrize("kind", list(SPACES))
def test_marwil_with_rllibs_constants_is_rllibs(kind: str, share_layers: bool) -> None:
    from ray.rllib.algorithms.marwil import MARWILConfig as RLlibConfig
    from ray.rllib.algorithms.marwil.marwil_learner import LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY
    from ray.rllib.algorithms.marwil.torch.marwil_torch_learner import MARWILTorchLearner

    config = MARWIL(
        beta=0.8, value_coefficient=0.5, max_weight=1e6, normalizer_rate=1e-8, normalizer_start=100.0, normalize_values=False
    )
    network = NetworkConfig(hidden_sizes=[16], share_layers=share_layers)
    networks = Networks(config, VECTOR, SPACES[kind], network, seed=3)
    policy, batch = networks.policy, made_batch(networks.policy)
    terms = networks(batch)

    rllib_config = RLlibConfig().training(beta=0.8, vf_coeff=0.5)
    norms = {"p": torch.tensor(rllib_config.moving_average_sqd_adv_norm_start)}
    learner, logged = rllib_learner(policy, rllib_config, moving_avg_sqd_adv_norms_per_module=norms)
    theirs = MARWILTorchLearner.compute_loss_for_module(
        learner, module_id="p", config=rllib_config, batch=batch, fwd_out={"action_dist_inputs": policy(batch["obs"])}
    )
    torch.testing.assert_close(terms.loss.mean(), theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(terms.metrics["policy_loss"].mean(), logged["policy_loss"].detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(terms.metrics["value_loss"].mean(), logged["vf_loss"].detach(), rtol=1e-5, atol=1e-6)
    assert_same_gradients(terms.loss.mean(), theirs, policy)

    means = {name: term.mean() for name, term in terms.metrics.items()}
    networks.algorithm.after_update(networks, means)
    torch.testing.assert_close(networks.normalizer, norms["p"])
    numbers = networks.algorithm.log_metrics(networks, {name: float(mean) for name, mean in means.items()})
    assert max(numbers["explained_variance"], -1) == pytest.approx(
        float(logged[LEARNER_RESULTS_VF_EXPLAINED_VAR_KEY]), abs=1e-4
    )


def test_the_normaliser_moves_as_rllibs_one_update_later() -> None:
    """RLlib moves it before it is used, and only by the learner's own batch; with a rate that can be seen."""
    from ray.rllib.algorithms.marwil import MARWILConfig as RLlibConfig
    from ray.rllib.algorithms.marwil.torch.marwil_torch_learner import MARWILTorchLearner

    networks = Networks(MARWIL(normalizer_rate=0.1, normalizer_start=100.0, normalize_values=False), VECTOR, SPACES["discrete"])
    batch = made_batch(networks.policy)
    rllib_config = RLlibConfig().training(moving_average_sqd_adv_norm_update_rate=0.1)
    learner, _ = rllib_learner(networks.policy, rllib_config, moving_avg_sqd_adv_norms_per_module={"p": torch.tensor(100.0)})
    for _ in range(3):
        terms = networks(batch)
        networks.algorithm.after_update(networks, {name: term.mean() for name, term in terms.metrics.items()})
        inputs = networks.policy(batch["obs"])
        MARWILTorchLearner.compute_loss_for_module(
            learner, module_id="p", config=rllib_config, batch=batch, fwd_out={"action_dist_inputs": inputs}
        )
        torch.testing.assert_close(networks.normalizer, learner.moving_avg_sqd_adv_norms_per_module["p"])
    assert networks.normalizer < 90


@pytest.mark.parametrize("kind", list(SPACES))
def test_cloning_is_rllibs(kind: str) -> None:
    from ray.rllib.algorithms.bc import BCConfig
    from ray.rllib.algorithms.marwil.torch.marwil_torch_learner import MARWILTorchLearner

    networks = Networks(BC(), VECTOR, SPACES[kind], NetworkConfig(hidden_sizes=[16]), seed=3)
    batch = made_batch(networks.policy)
    learner, _ = rllib_learner(networks.policy, BCConfig())
    theirs = MARWILTorchLearner.compute_loss_for_module(
        learner,
        module_id="p",
        config=BCConfig(),
        batch=batch,
        fwd_out={"action_dist_inputs": networks.policy(batch["obs"])},
    )
    ours = networks(batch).loss.mean()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert_same_gradients(ours, theirs, networks.policy)


@pytest.mark.parametrize("kind", list(SPACES))
def test_ppo_is_rllibs_without_its_penalties(kind: str) -> None:
    """Without the penalty for KL divergence, and without the clip of the value function's loss."""
    from ray.rllib.algorithms.ppo import PPOConfig as RLlibConfig
    from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner

    parameters = PPO(clip_range=0.2, value_coefficient=0.5, entropy_coefficient=0.01)
    networks = Networks(parameters, VECTOR, SPACES[kind], NetworkConfig(hidden_sizes=[16]), seed=3)
    policy = networks.policy
    batch = made_batch(policy)
    with torch.no_grad():
        rng = torch.Generator().manual_seed(1)
        old = policy.head.log_prob(policy(batch["obs"]), batch["actions"]) + 0.3 * torch.randn(STEPS, generator=rng)
    output = networks(batch | {"old_log_probs": old, "old_values": batch["value_targets"]})
    ours, losses = output.loss.mean(), {name: term.mean() for name, term in output.metrics.items()}

    config = RLlibConfig().training(use_kl_loss=False, clip_param=0.2, vf_clip_param=float("inf"), vf_loss_coeff=0.5)
    entropy = {"p": SimpleNamespace(get_current_value=lambda: 0.01)}
    learner, logged = rllib_learner(policy, config, entropy_coeff_schedulers_per_module=entropy)
    inputs = policy(batch["obs"])
    theirs = PPOTorchLearner.compute_loss_for_module(
        learner,
        module_id="p",
        config=config,
        batch=batch | {"action_logp": old, "action_dist_inputs": inputs.detach()},
        fwd_out={"action_dist_inputs": inputs},
    )
    torch.testing.assert_close(losses["policy_loss"], logged["policy_loss"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(losses["value_loss"], logged["vf_loss"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(losses["entropy"], logged["entropy"], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert_same_gradients(ours, theirs, policy)


def test_gae_is_rllibs() -> None:
    """On whole episodes, with the row after the last step that RLlib adds for the purpose."""
    from ray.rllib.utils.postprocessing.value_predictions import compute_value_targets

    from offline_core.learning.returns import steps_left, value_targets
    from tests.learning.algorithms.making import made_steps

    steps = made_steps([5, 1, 8, 3], [True, False, False, True])
    values = np.random.default_rng(1).normal(size=len(steps.episode)).astype(np.float32)
    rewards = steps.columns["rewards"].nan_to_num()
    truncated = torch.zeros(len(values), dtype=torch.bool)
    truncated[steps.last - 1] = ~steps.columns["terminateds"][steps.last - 1]
    theirs = compute_value_targets(
        values=values,
        rewards=rewards.numpy(),
        terminateds=steps.columns["terminateds"].numpy().astype(np.float32),
        truncateds=truncated.numpy().astype(np.float32),
        gamma=0.97,
        lambda_=0.9,
    )
    ours = value_targets(
        rewards,
        torch.from_numpy(values),
        steps_left(steps),
        terminated=steps.columns["terminateds"],
        gamma=0.97,
        gae_lambda=0.9,
    )
    np.testing.assert_allclose(ours[steps.rows], theirs[steps.rows], rtol=1e-5, atol=1e-5)
