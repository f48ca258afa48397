"""What is learned, five seeds each: mixtures of good and bad experience, the best tenth, Pendulum, DQN, memory.

    python -m benchmarks.learned [--seeds 5] [--only mixture dqn]

One JSON line a figure: the mean over the seeds, all of them in `seeds`.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.figure import figure
from benchmarks.mixtures import CARTPOLE, HIDDEN, adversary, at_random, expert, hidden, played, write
from offline_core.learning.config import TrainingConfig
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.train import train_expert
from offline_core.learning.train import train
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.rollouts import rollouts
from offline_core.runtime.config import EnvironmentSpec, parse

STEPS = 40_000
REPLAY_STEPS = 100_000
EPISODES = 100
Scores = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(MEASURED), choices=list(MEASURED))
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    for name in arguments.only:
        by_seed: list[Scores] = []
        for seed in range(arguments.seeds):
            with tempfile.TemporaryDirectory(prefix="offline-bench-") as root:
                by_seed.append(MEASURED[name](Path(root), seed))
        for key in by_seed[0]:
            scores = [scores[key] for scores in by_seed]
            figure(key, statistics.mean(scores), "return", seeds=[round(score, 1) for score in scores])


def mixture(root: Path, seed: int) -> Scores:
    """Half of the steps from an adversary (or at random), a quarter from a medium policy, a quarter from an expert."""
    best, medium = expert(root / "expert", seed), expert(root / "medium", seed, evaluation={"target_return": 150})
    scores: Scores = {}
    for name, bad, explore in (("adversary", adversary(best), False), ("random", at_random(best), True)):
        episodes = [
            *played(bad, STEPS // 2, seed=seed, name=name),
            *played(medium, STEPS // 4, seed=seed + 100, name="medium"),
            *played(best, STEPS // 4, seed=seed + 200, name="expert"),
        ]
        dataset = write(root / name, episodes)
        for algorithm, settings in (("bc", {}), ("marwil", MARWIL)):
            policy = trained(dataset, root / f"{name}-{algorithm}", seed, algorithm=algorithm, **settings)
            scores[f"mixture.{name}.{algorithm}.return"] = score(policy, CARTPOLE, seed, explore=explore)
        if name == "random":
            top = sorted(episodes, key=lambda episode: -episode.return_)[: max(1, len(episodes) // 10)]
            policy = trained(write(root / "top", top), root / "top-bc", seed, algorithm="bc")
            scores["mixture.random.bc_top_tenth.return"] = score(policy, CARTPOLE, seed, explore=explore)
    return scores


MARWIL: dict[str, Any] = {"marwil": {"beta": 2.0, "gae_lambda": 0.95}}
NETWORK = {"hidden_sizes": [64, 64]}


def trained(dataset: str, output: Path, seed: int, *, environment: dict[str, Any] | None = None, **settings: Any) -> str:
    """The last policy of a training that never looks at the environment: nothing is chosen by playing."""
    base: dict[str, Any] = {
        "seed": seed,
        "network": NETWORK,
        "optimizer": {"batch_size": 1024, "max_epochs": 40, "learning_rate": 1e-3, "updates_per_iteration": 10**6},
    }
    config = parse(TrainingConfig, base | settings)
    return train(config, dataset=dataset, output=str(output)).last_checkpoint


def score(policy: str, environment: EnvironmentSpec, seed: int, *, explore: bool = False) -> float:
    played_ = rollouts(load_policy(policy), environment, episodes=EPISODES, seed=seed + 1000, explore=explore)
    return played_.metrics["episode_return_mean"]


def pendulum(root: Path, seed: int) -> Scores:
    """A clone of continuous actions against its expert, on the same starts; as returns are costs, theirs over ours."""
    environment = EnvironmentSpec(id="Pendulum-v1")
    network = {"activation": "silu"}
    config = parse(
        ExpertConfig,
        {
            "seed": seed,
            "environment": environment.model_dump(),
            "network": network,
            "evaluation": {"target_return": -170},
            "rollouts_per_iteration": 4,
            "ppo": {"gamma": 0.95},
        },
    )
    checkpoint = train_expert(config, output=str(root / "expert")).checkpoint
    episodes = list(played(load_policy(checkpoint), STEPS, seed=seed, name="expert", environment=environment, explore=False))
    dataset = write(root / "data", episodes)
    policy = trained(dataset, root / "clone", seed, network=NETWORK | network | {"normalize_observations": True})
    theirs, ours = (score(uri, environment, seed) for uri in (checkpoint, policy))
    return {"pendulum.expert.return": theirs, "pendulum.clone.return": ours, "pendulum.ratio_to_expert": theirs / ours}


def dqn(root: Path, seed: int) -> Scores:
    """From what PPO's policies did on their way to the expert."""
    episodes = []
    for number, target in enumerate((30, 60, 100, 150, 200, 300, 400, 475)):
        policy = expert(root / str(target), seed, evaluation={"target_return": target})
        episodes += played(policy, REPLAY_STEPS // 8, seed=seed + 100 * number, name=str(target))
    dataset = write(root / "data", episodes)
    scores = {"dqn.data.return": statistics.mean(episode.return_ for episode in episodes)}
    for algorithm in ("dqn", "cql", "iql"):
        policy = trained(dataset, root / algorithm, seed, **DQN, algorithm=algorithm)
        scores[f"{algorithm}.return"] = score(policy, CARTPOLE, seed)
    return scores


def lstm(root: Path, seed: int) -> Scores:
    """Clones of an expert that saw the velocities, from episodes without them."""
    dataset = write(root / "data", hidden(list(played(expert(root / "expert", seed), STEPS, seed=seed, name="expert"))))
    scores = {}
    for name, network in (("lstm", {"hidden_sizes": [64], "recurrent": "lstm"}), ("mlp", {"hidden_sizes": [64, 64]})):
        policy = trained(dataset, root / name, seed, network=network, sequences={"steps": 32, "burn_in_steps": 16})
        scores[f"lstm.{name}.return" if name != "lstm" else "lstm.return"] = score(policy, HIDDEN, seed)
    return scores


DQN: dict[str, Any] = {
    "network": {"hidden_sizes": [128, 128]},
    "optimizer": {"batch_size": 256, "max_epochs": 10, "learning_rate": 5e-4, "updates_per_iteration": 10**6},
}
MEASURED: dict[str, Callable[[Path, int], Scores]] = {"mixture": mixture, "pendulum": pendulum, "dqn": dqn, "lstm": lstm}


if __name__ == "__main__":
    main()
