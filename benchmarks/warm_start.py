"""Pretrain, then go on: environment steps of PPO to a mean return of 475 on CartPole, from a mediocre clone and from nothing.

    python -m benchmarks.warm_start [--seeds 5]

The clone learned from 20 episodes of a half-trained policy, actions sampled. Steps that recording took are not counted:
offline experience is there before. Both are evaluated after every rollout of 4,096 steps; the clone's first rollout only
fits its value function, and counts.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile

from benchmarks.figure import figure
from offline_core.config import parse
from offline_core.evaluation.config import EvaluationConfig
from offline_core.evaluation.evaluate import evaluate_policy
from offline_core.experts.config import ExpertConfig
from offline_core.experts.result import ExpertResult
from offline_core.experts.train import train_expert
from offline_core.learning.config import TrainingConfig
from offline_core.learning.train import train_policy
from offline_core.ray_session import ray_session
from offline_core.recording.config import RecordingConfig
from offline_core.recording.record import record_episodes
from offline_core.storage.dataset import open_dataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    warm, scratch, recorded, cloned, sampled = [], [], [], [], []
    with tempfile.TemporaryDirectory(prefix="offline-bench-") as root, ray_session():
        for seed in range(parser.parse_args().seeds):
            clone, mean_return = mediocre_clone(f"{root}/{seed}", seed)
            recorded.append(mean_return)
            cloned.append(mean_of(clone, explore=False))
            sampled.append(mean_of(clone, explore=True))
            scratch.append(expert(f"{root}/{seed}/scratch", seed).env_steps)
            warm.append(expert(f"{root}/{seed}/warm", seed, initial_policy=clone).env_steps)
    figure(
        "warm_start.env_steps_ratio",
        statistics.mean(warm) / statistics.mean(scratch),
        "of the steps from scratch",
        steps=warm,
        steps_from_scratch=scratch,
        recorded_returns=recorded,
        clone_returns=cloned,
        clone_returns_sampled=sampled,
    )


def mediocre_clone(root: str, seed: int) -> tuple[str, float]:
    """A checkpoint, and the mean return of the 20 episodes that it was cloned from."""
    medium = expert(f"{root}/medium", 100 + seed, target_return=300).checkpoint
    dataset = record_episodes(RecordingConfig(episodes=20, seed=seed), policy=medium, output=f"{root}/recording")
    optimizer = {"batch_size": 256, "max_epochs": 60}
    config = parse(TrainingConfig, {"seed": seed, "optimizer": optimizer, "evaluation": {"target_return": 10_000}})
    cloned = train_policy(config, dataset=dataset.uri, output=f"{root}/clone")
    return cloned.last_checkpoint, round(open_dataset(dataset.uri).manifest.statistics.returns.mean, 1)


def expert(output: str, seed: int, **config: object) -> ExpertResult:
    return train_expert(parse(ExpertConfig, {"seed": seed, "evaluation_interval": 1, **config}), output=output)


def mean_of(policy: str, *, explore: bool) -> float:
    return evaluate_policy(EvaluationConfig(explore=explore), policy=policy).metrics["episode_return_mean"]


if __name__ == "__main__":
    main()
