"""Evaluate a finished policy in its environment, from start states that no other stage has used."""

from __future__ import annotations

import logging
import time

from offline_core.data.datasets.result_cache import StoredResult
from offline_core.data.store.location import Location
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.evaluation.config import EvaluationConfig
from offline_core.policies.evaluation.result import EVALUATIONS, EvaluationResult
from offline_core.policies.evaluation.user_metric import UserMetric, with_results
from offline_core.policies.manifest import environment_for, find_policy, fingerprint_of
from offline_core.policies.rollouts.rollouts import rollouts
from offline_core.runtime.progress import progress
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.stage import Made, policy, stage
from offline_core.runtime.torch_settings import torch_threads

log = logging.getLogger(__name__)

"""Folder inside a checkpoint."""


@stage(
    "evaluate",
    version=3,
    after="sweep",
    arguments=(policy("play"),),
    run_name="evaluate {policy}, {config.episodes} episodes, seed {config.seed}",
)
def evaluate(config: EvaluationConfig, *, policy: str) -> Made[EvaluationResult]:
    """Play a policy on start states that no other stage has seen.

    The result of the `episodes` whole episodes is kept at `<policy>/_evaluations`.

    Arguments:
        policy: URI of a checkpoint, or the address of a registered one.

    Raises:
        CheckpointError: `policy` is not a checkpoint.
        ConfigError: no environment is known, or it cannot be made; a user metric cannot be made, fails, returns a value
            that is not a finite number, or repeats the name of another.
    """
    start = time.perf_counter()
    policy, manifest = find_policy(policy)
    environment = environment_for(policy, manifest, config.environment)
    config = config.model_copy(update={"environment": environment})
    begun = yield StoredResult(
        EvaluationResult,
        Location.of(policy).child(EVALUATIONS),
        [manifest.parent_entry(policy)],
        fingerprint_of,
        outputs=lambda result: [result.checkpoint],
        config=config,
        name="{identity}.json",
        is_beside=True,
    )
    user_metrics = [UserMetric(each) for each in config.metrics]
    seed = derive_seed(config.seed, "evaluate_policy")
    with torch_threads(1), progress(config.episodes, what="evaluate", unit="episode") as bar:  # as a training's evaluations do
        played = rollouts(
            load_policy(policy, manifest),
            environment,
            episodes=config.episodes,
            seed=seed,
            explore=config.explore,
            num_envs=config.num_envs,
            on_ended=bar.update,
            metrics=user_metrics,
        )
    metrics = with_results(played.metrics, user_metrics)
    mean, std = metrics["episode_return_mean"], metrics["episode_return_std"]
    log.info("Policy %s: return %.1f ± %.1f over %d episodes of %s", policy, mean, std, config.episodes, environment.id)
    return EvaluationResult(
        actions="sampled" if config.explore else "greedy",
        uri=begun.place.uri,
        checkpoint=policy,
        environment=environment.id,
        metrics=metrics,
        returns=played.returns.tolist(),
        lengths=played.lengths.tolist(),
        seconds=time.perf_counter() - start,
    )
