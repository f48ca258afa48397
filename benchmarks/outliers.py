"""Bad episodes put into real recordings: how many of them are ranked on top, and how many good ones are called outliers.

    python -m benchmarks.outliers runs/a runs/b --output runs/benchmark

Of each dataset 2 % of the episodes are damaged, in equal parts by each kind of defect. Precision is the share of the damaged
episodes among as many with the highest scores. False alarms are those of the dataset as it was recorded.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

import offline_core as offline
from offline_core.data.datasets.commit import commit, prepare_dataset
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.episodes import Episode
from offline_core.judging.ranking.config import OutlierConfig
from offline_core.judging.ranking.outliers import outliers
from offline_core.judging.ranking.result import OutlierResult

SHARE = 0.02
Defect = Callable[[Episode, np.random.Generator], Episode]


def stuck_sensor(episode: Episode, rng: np.random.Generator) -> Episode:
    seen = episode.observations.copy()
    start, column = len(episode) // 3, rng.integers(seen.shape[1])
    seen[start:, column] = seen[start, column]
    return replace(episode, observations=seen)


def other_actions(episode: Episode, rng: np.random.Generator) -> Episode:
    space = episode.action_space
    assert space is not None
    space.seed(int(rng.integers(2**31)))
    actions = np.array([space.sample() for _ in range(len(episode))], episode.actions.dtype)
    return replace(episode, actions=actions.reshape(episode.actions.shape))


def scaled_rewards(episode: Episode, rng: np.random.Generator) -> Episode:
    return replace(episode, rewards=episode.rewards * 5)


def swapped_columns(episode: Episode, rng: np.random.Generator) -> Episode:
    seen = episode.observations
    return replace(episode, observations=np.ascontiguousarray(seen[:, np.roll(np.arange(seen.shape[1]), 1)]))


def shuffled_steps(episode: Episode, rng: np.random.Generator) -> Episode:
    order = rng.permutation(len(episode))
    seen = np.concatenate([episode.observations[:-1][order], episode.observations[-1:]])
    return replace(episode, observations=seen, actions=episode.actions[order], rewards=episode.rewards[order])


def truncated_early(episode: Episode, rng: np.random.Generator) -> Episode:
    return replace(episode.slice(0, max(2, len(episode) // 3)), terminated=False, truncated=False)


def time_jump(episode: Episode, rng: np.random.Generator) -> Episode:
    start, stop = len(episode) // 3, 2 * len(episode) // 3
    keep = np.r_[0:start, stop : len(episode)]
    seen = np.concatenate([episode.observations[:start], episode.observations[stop:]])
    return replace(episode, observations=seen, actions=episode.actions[keep], rewards=episode.rewards[keep])


DEFECTS: Sequence[Defect] = (
    stuck_sensor,
    other_actions,
    scaled_rewards,
    swapped_columns,
    shuffled_steps,
    truncated_early,
    time_jump,
)


def damaged(episodes: Sequence[Episode], *, seed: int = 0, share: float = SHARE) -> tuple[list[Episode], dict[int, str]]:
    """Return the episodes, of which a share is damaged, and the defects by the numbers of the damaged episodes."""
    rng = np.random.default_rng(seed)
    long_enough = np.flatnonzero([len(episode) >= 12 for episode in episodes])
    chosen = rng.choice(long_enough, max(len(DEFECTS), round(share * len(episodes))), replace=False)
    by = {int(number): DEFECTS[i % len(DEFECTS)] for i, number in enumerate(chosen)}
    changed = [by[i](episode, rng) if i in by else episode for i, episode in enumerate(episodes)]
    return changed, {number: defect.__name__ for number, defect in by.items()}


def write(folder: Path, episodes: Sequence[Episode]) -> str:
    """Commit a dataset of these."""
    with EpisodeWriter(prepare_dataset(str(folder)), "part", format="episodes", config=FilesConfig()) as writer:
        writer.write(episodes)
    commit(
        str(folder),
        writer.files,
        format="episodes",
        operation=Operation(name="damage"),
        statistics=Statistics.of(writer.summaries),
        observation_space=episodes[0].observation_space,
        action_space=episodes[0].action_space,
    )
    return str(folder)


def ranked(result: OutlierResult) -> np.ndarray:
    """(E,) numbers of the episodes, the farthest first."""
    return np.argsort(-pl.read_parquet(result.scores)["outlier_score"].to_numpy(), kind="stable")


def measure(source: str, output: Path, config: OutlierConfig, every: int = 1) -> dict[str, object]:
    """The numbers of one dataset."""
    recorded = [replace(episode, extras={}) for episode in offline.open_dataset(source).episodes()][::every]
    clean = outliers(config, dataset=write(output / "clean data", recorded), output=str(output / "clean"))
    episodes, by = damaged(recorded)
    result = outliers(config, dataset=write(output / "data", episodes), output=str(output / "damaged"))
    top = set(ranked(result)[: len(by)].tolist())
    kinds = {defect.__name__: [number in top for number, name in by.items() if name == defect.__name__] for defect in DEFECTS}
    return {
        "data": source,
        "episodes": len(episodes),
        "steps": result.dataset.steps,
        "damaged": len(by),
        "precision_at_n": sum(number in top for number in by) / len(by),
        "by_kind": {name: f"{sum(hits)} of {len(hits)}" for name, hits in kinds.items()},
        "false_alarms_per_1000_clean": 1000 * clean.count / clean.dataset.episodes,
        "clean": [str(outlier) for outlier in clean.outliers][:8],
        "seconds": round(result.seconds, 1),
        "found": [str(outlier) for outlier in result.outliers if outlier.episode in by][:8],
        "missed": {number: name for number, name in by.items() if number not in top},
        "intruders": [str(outlier) for outlier in result.outliers if outlier.episode not in by][:8],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--output", type=Path, default=Path("runs/benchmarks/outliers"))
    parser.add_argument("--every", type=int, default=1, help="Take every so many-th episode.")
    arguments = parser.parse_args()
    for number, source in enumerate(arguments.datasets):
        print(
            json.dumps(measure(source, arguments.output / str(number), OutlierConfig(), arguments.every), indent=1), flush=True
        )


if __name__ == "__main__":
    main()
