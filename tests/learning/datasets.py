"""Datasets with spaces and an environment, written without Ray."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from offline_core.data.datasets.commit import commit
from offline_core.data.datasets.manifest import Operation, Parent
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.environments.vector_env import spaces_of
from offline_core.data.episodes import Episode
from offline_core.data.episodes.codecs import Format
from offline_core.runtime.config import EnvironmentSpec
from tests.data.datasets.factories import write_files

CARTPOLE = EnvironmentSpec(id="CartPole-v1")
SPACES = spaces_of(CARTPOLE)


def dataset_of(
    uri: Path,
    episodes: list[Episode],
    *,
    format: Format = "episodes",
    spaces=SPACES,
    environment=CARTPOLE,
    rows: int | None = None,
    operation: Operation = Operation(name="made up"),
    parents: Sequence[Parent] = (),
) -> str:
    writer = write_files(uri, episodes, format, batch=max(1, len(episodes)), max_rows_per_file=rows)
    commit(
        str(uri),
        writer.files,
        format=format,
        operation=operation,
        parents=parents,
        statistics=Statistics.of(writer.summaries),
        environment=environment,
        observation_space=spaces[0],
        action_space=spaces[1],
    )
    return str(uri)
