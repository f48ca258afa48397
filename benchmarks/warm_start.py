"""Pretrain, then go on: environment steps of PPO to a mean return of 475 on CartPole, pretrained and from nothing.

    python -m benchmarks.warm_start [--seeds 10]

Pretrained by MARWIL, which brings a value function, and by BC, which does not, on 100 episodes of a half-trained policy. Steps
that recording took are not counted: offline experience is there before. Both are evaluated after every rollout of 4,096
steps; without a value function the first rollout only fits one, and counts.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile

from benchmarks.figure import figure
from offline_core.data.datasets.dataset import open_dataset
from offline_core.learning.config import TrainingConfig
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.train import train_expert
from offline_core.learning.result import ExpertResult
from offline_core.learning.train import train
from offline_core.policies.evaluation import EvaluationConfig, evaluate
from offline_core.policies.recording.config import RecordingConfig
from offline_core.policies.recording.record import record
from offline_core.runtime.config import parse
from offline_core.runtime.ray_session import ray_session


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    with tempfile.TemporaryDirectory(prefix="offline-bench-") as root, ray_session():
        scratch = [expert(f"{root}/{seed}/scratch", seed).env_steps for seed in seeds]
        datasets = [medium_recording(f"{root}/{seed}", seed) for seed in seeds]
        for algorithm in ("marwil", "bc"):
            policies = [pretrained(datasets[seed], f"{root}/{seed}/{algorithm}", seed, algorithm) for seed in seeds]
            warm = [expert(f"{root}/{seed}/{algorithm}-warm", seed, initial_policy=policies[seed]).env_steps for seed in seeds]
            figure(
                "warm_start.env_steps_ratio",
                statistics.mean(warm) / statistics.mean(scratch),
                "of the steps from scratch",
                pretrained_by=algorithm,
                steps=warm,
                steps_from_scratch=scratch,
                recorded_returns=[round(open_dataset(uri).manifest.statistics.returns.mean, 1) for uri in datasets],
                pretrained_returns=[mean_of(policy, explore=False) for policy in policies],
                pretrained_returns_sampled=[mean_of(policy, explore=True) for policy in policies],
            )


def medium_recording(root: str, seed: int) -> str:
    """100 episodes of a half-trained policy, actions sampled."""
    medium = expert(f"{root}/medium", 100 + seed, evaluation={"target_return": 300}).checkpoint
    return record(RecordingConfig(episodes=100, seed=seed), policy=medium, output=f"{root}/recording").dataset.uri


def pretrained(dataset: str, output: str, seed: int, algorithm: str) -> str:
    """The last checkpoint of a training that runs to its end."""
    settings = {
        "seed": seed,
        "algorithm": algorithm,
        "optimizer": {"batch_size": 256, "max_epochs": 20},
        "evaluation": {"target_return": 10_000},
    }
    return train(parse(TrainingConfig, settings), dataset=dataset, output=output).last_checkpoint


def expert(output: str, seed: int, **config: object) -> ExpertResult:
    return train_expert(parse(ExpertConfig, {"seed": seed, "rollouts_per_iteration": 1, **config}), output=output)


def mean_of(policy: str, *, explore: bool) -> float:
    return evaluate(EvaluationConfig(explore=explore), policy=policy).metrics["episode_return_mean"]


if __name__ == "__main__":
    main()
