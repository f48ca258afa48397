"""Train an expert with PPO: play, learn and evaluate until the policy is good enough."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterator

from gymnasium.vector import VectorEnv

from offline_core.datasets.dataset import open_dataset
from offline_core.datasets.manifest import Operation, Parent, identity_of
from offline_core.datasets.result_cache import RESULT_FILE, invalidate_result, load_result, store_result
from offline_core.errors import DatasetNotFoundError, VersionNotFoundError
from offline_core.evaluation.result import FOLLOWED
from offline_core.experts.config import ExpertConfig
from offline_core.experts.ppo import PPO
from offline_core.experts.recording import recorder_of
from offline_core.experts.result import ExpertResult
from offline_core.experts.rollout import Rollout
from offline_core.experts.start import first_policy, fit_values
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.manifest import fingerprint_of, read_policy_manifest
from offline_core.policies.policy import Policy
from offline_core.rollouts.environments import make_vector_env, reward_threshold
from offline_core.rollouts.loop import EnvironmentLoop
from offline_core.rollouts.rollouts import rollouts
from offline_core.runtime.code_permission import remember_code
from offline_core.runtime.progress import progress
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.torch_threads import torch_threads
from offline_core.storage.location import Location

log = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"


def train_expert(config: ExpertConfig, *, output: str) -> ExpertResult:
    """Train with PPO until the mean greedy return reaches the target, or the steps are used up.

    An `initial_policy` is evaluated first, so the result is never worse. The same `config` makes the same policy, to the
    bit, on the same machine and number of Torch threads.

        <output>/best            the checkpoint with the best evaluation so far, replaced at each improvement
        <output>/recording       a dataset of episodes played during training, if `config.recording` is set
        <output>/metrics.jsonl   one line an evaluation
        <output>/result.json     the result, which the same call reuses

    Raises:
        ConfigError: the environment is unknown, its spaces are not supported, or `initial_policy` has others; nothing is
            written.
        CheckpointError: `initial_policy` is not a checkpoint.
        StorageError: `output` cannot be written; found before training.
        BusyError: another run is writing to `output`.
        LearningError: the loss became NaN or infinite.
    """
    remember_code(config)
    parents, location = _parents(config), Location.of(output)
    operation = Operation.of("train_expert", config, version=2, exclude={"initial_policy"})
    identity, place = identity_of(operation, parents), location.child(RESULT_FILE)
    if found := _found(place, identity):
        return found
    env = make_vector_env(config.environment, min(config.num_envs, config.total_steps))
    with contextlib.closing(env), torch_threads(config.torch_threads), contextlib.ExitStack() as stack:
        policy, fresh_values = first_policy(config, (env.single_observation_space, env.single_action_space))
        stack.enter_context(location.make_folder().locked())
        if found := _found(place, identity):
            return found  # another run made it meanwhile
        started = time.perf_counter()
        invalidate_result(place)
        target = config.target_return if config.target_return is not None else reward_threshold(config.environment)
        best: dict[str, float] = {}
        lines: list[dict[str, float]] = []
        with (
            recorder_of(policy, config, location, operation, parents) as recorder,
            progress(config.total_steps, what="train expert", unit="step") as bar,
        ):
            learning = _learn(policy, env, config, fresh_values=fresh_values)
            for number, (env_steps, losses) in enumerate(learning, start=0 if parents else 1):
                bar.to(env_steps)
                if recorder is not None:
                    recorder.after(number)
                if number % config.evaluation_interval and _has_steps_left(env, env_steps, config):
                    continue
                metrics = _evaluate(policy, config)
                score = metrics["episode_return_mean"]
                played = {name: metrics[name] for name in FOLLOWED if name in metrics}
                lines.append({"env_steps": env_steps, **played, **losses, "seconds": time.perf_counter() - started})
                bar.note(mean_return=score)
                if not best or score > best["episode_return_mean"]:
                    best = metrics
                    checkpoint = save_policy(
                        policy,
                        location.child("best").uri,
                        operation=operation,
                        environment=config.environment,
                        parents=parents,
                        metrics=metrics,
                    )
                if target is not None and score >= target:
                    break
        location.child(METRICS_FILE).write("".join(json.dumps(line) + "\n" for line in lines).encode())
        result = ExpertResult(
            checkpoint=location.child("best").uri,
            reached_target=target is None or best["episode_return_mean"] >= target,
            target_return=target,
            metrics=best,
            env_steps=env_steps,
            recording=recorder and recorder.dataset,
            seconds=time.perf_counter() - started,
            curve=[(int(line["env_steps"]), line["episode_return_mean"]) for line in lines],
        )
        store_result(place, identity, result, fingerprints={result.checkpoint: checkpoint.fingerprint})
    _report(result)
    return result


def _learn(
    policy: Policy, env: VectorEnv, config: ExpertConfig, *, fresh_values: bool
) -> Iterator[tuple[int, dict[str, float]]]:
    """Improve the policy; yield (environment steps so far, losses) after each rollout, until the steps are used up.

    The first yield of an initial policy comes before any update. If its value function is new, the first rollout fits only
    that.
    """
    loop = EnvironmentLoop(env, policy, seed=config.seed, explore=True, with_extras=True)
    ppo = PPO(policy, config.ppo, seed=derive_seed(config.seed, "minibatches"))
    env_steps = 0
    if config.initial_policy is not None:
        yield env_steps, {}
    while _has_steps_left(env, env_steps, config):
        rollout = Rollout.of(loop.take(config.rollout_steps, max_env_steps=config.total_steps - env_steps))
        losses = fit_values(policy, rollout, config) if fresh_values and not env_steps else ppo.update(rollout)
        env_steps += int(rollout.is_step.sum())
        yield env_steps, losses
        if policy.network.normalize_observations:  # after the update, which has to see what the policy saw
            policy.encoder.update_statistics(rollout.flat_observations)


def _has_steps_left(env: VectorEnv, env_steps: int, config: ExpertConfig) -> bool:
    """Whether all copies, which step together, may take another step."""
    return env_steps + env.num_envs <= config.total_steps


def _evaluate(policy: Policy, config: ExpertConfig) -> dict[str, float]:
    seed = derive_seed(config.seed, "evaluation")
    return rollouts(policy, config.environment, episodes=config.evaluation_episodes, seed=seed).metrics


def _found(place: Location, identity: str) -> ExpertResult | None:
    """The stored result of the same call, if its recording still exists."""
    found = load_result(place, identity, ExpertResult, fingerprint=fingerprint_of)
    if found is None or found.recording is None:
        return found
    try:
        open_dataset(found.recording.uri, found.recording.version)
    except (DatasetNotFoundError, VersionNotFoundError):
        return None
    return found


def _parents(config: ExpertConfig) -> list[Parent]:
    uri = config.initial_policy
    return [] if uri is None else [read_policy_manifest(uri).parent_entry(uri)]


def _report(result: ExpertResult) -> None:
    score = result.metrics["episode_return_mean"]
    summary = f"a mean return of {score:.1f} after {result.env_steps} steps and {result.seconds:.1f} s: {result.checkpoint}"
    if result.reached_target:
        log.info("The expert has %s", summary)
    else:
        log.warning(
            "The expert did not reach the target return of %g: the best one has %s. "
            "Give it more total_steps, another seed, or a lower target_return.",
            result.target_return,
            summary,
        )
