"""Evaluates a finished policy in its environment, on start states that no stage before has seen."""

from __future__ import annotations

import logging
import time

from offline_core.code_permission import recorded_environment, remember_code
from offline_core.errors import ConfigError, StorageError
from offline_core.evaluation.config import EvaluationConfig
from offline_core.evaluation.own_metric import OwnMetric, with_results
from offline_core.evaluation.result import EvaluationResult
from offline_core.evaluation.rollouts import rollouts
from offline_core.policies.checkpoint import fingerprint_of, load_policy, read_policy_manifest
from offline_core.progress import progress
from offline_core.seeding import derive_seed
from offline_core.storage.kept import keep, kept
from offline_core.storage.location import Location
from offline_core.storage.manifest import Operation, identity_of

log = logging.getLogger(__name__)

EVALUATIONS = "_evaluations"
"""Folder inside a checkpoint."""


def evaluate_policy(config: EvaluationConfig, *, policy: str) -> EvaluationResult:
    """Plays `episodes` whole episodes; the result is kept at `<policy>/_evaluations`, and found by the next call for the same.

    Arguments:
        policy: URI of a checkpoint.

    Raises:
        CheckpointError: there is no policy to play.
        ConfigError: no environment is known, or it cannot be made; a metric cannot be made, failed, or gives what is no
            finite number or has the name of another.
    """
    start = time.perf_counter()
    remember_code(config)
    manifest = read_policy_manifest(policy)
    environment = config.environment or recorded_environment(manifest.environment, file=policy)
    if environment is None:
        raise ConfigError(f"Policy {policy} does not say where it was trained; name the environment to evaluate in.")
    config = config.model_copy(update={"environment": environment})
    operation = Operation.of("evaluate_policy", config, version=2)
    identity = identity_of(operation, [manifest.parent_entry(policy)])
    place = Location.of(policy).child(f"{EVALUATIONS}/{identity}.json")
    if found := kept(place, identity, EvaluationResult, fingerprint=fingerprint_of):
        return found
    own = [OwnMetric(each) for each in config.metrics]
    seed = derive_seed(config.seed, "evaluate_policy")
    with progress(config.episodes, what="evaluate", unit="episode") as bar:
        played = rollouts(
            load_policy(policy, manifest),
            environment,
            episodes=config.episodes,
            seed=seed,
            explore=config.explore,
            num_envs=config.num_envs,
            on_ended=bar.update,
            metrics=own,
        )
    metrics = with_results(played.metrics, own)
    result = EvaluationResult(
        uri=place.uri,
        checkpoint=policy,
        environment=environment.id,
        metrics=metrics,
        returns=played.returns.tolist(),
        lengths=played.lengths.tolist(),
        seconds=time.perf_counter() - start,
    )
    try:
        keep(place, identity, result, made={policy: manifest.fingerprint})
    except StorageError as error:  # a policy may lie where nobody may write, and the caller has the result
        log.warning("The evaluation is not kept beside the policy: %s", error)
    mean, std = metrics["episode_return_mean"], metrics["episode_return_std"]
    log.info("Policy %s: return %.1f ± %.1f over %d episodes of %s", policy, mean, std, config.episodes, environment.id)
    return result
