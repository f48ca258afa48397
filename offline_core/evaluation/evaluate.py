"""Evaluates a finished policy in its environment, on start states that no stage before has seen."""

from __future__ import annotations

import logging
import time

from offline_core.errors import ConfigError
from offline_core.evaluation.config import EvaluationConfig
from offline_core.evaluation.result import EvaluationResult
from offline_core.evaluation.rollouts import rollouts
from offline_core.policies.checkpoint import load_policy, read_policy_manifest
from offline_core.seeding import derive_seed

log = logging.getLogger(__name__)


def evaluate_policy(config: EvaluationConfig, *, policy: str) -> EvaluationResult:
    """Plays `episodes` whole episodes.

    Arguments:
        policy: URI of a checkpoint.

    Raises:
        CheckpointError: there is no policy to play.
        ConfigError: no environment is known, or it cannot be made.
    """
    start = time.perf_counter()
    environment = config.environment or read_policy_manifest(policy).environment
    if environment is None:
        raise ConfigError(f"Policy {policy} does not say where it was trained; name the environment to evaluate in.")
    seed = derive_seed(config.seed, "evaluate_policy")
    played = rollouts(load_policy(policy), environment, episodes=config.episodes, seed=seed, explore=config.explore)
    result = EvaluationResult(
        checkpoint=policy,
        environment=environment.id,
        metrics=played.metrics,
        returns=played.returns.tolist(),
        lengths=played.lengths.tolist(),
        seconds=time.perf_counter() - start,
    )
    mean, std = played.metrics["episode_return_mean"], played.metrics["episode_return_std"]
    log.info("Policy %s: return %.1f ± %.1f over %d episodes of %s", policy, mean, std, config.episodes, environment.id)
    return result
