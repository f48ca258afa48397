"""Write episodes to a table of a SQLite database, a step a row.

offline export runs/recording runs/steps.sqlite -s format=examples.writer:Sqlite
sqlite3 runs/steps.sqlite 'SELECT eps_id, sum(rewards) FROM steps GROUP BY eps_id'
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from types import TracebackType

import offline_core as offline

COLUMNS = ("eps_id", "t", "obs", "new_obs", "actions", "rewards", "terminateds", "truncateds")


class Sqlite:
    """Replaces a table in one transaction, so that it appears whole or not at all; arrays are JSON."""

    def __init__(self, output: str, *, table: str = "steps") -> None:
        self.output, self.table = output, table

    def __enter__(self) -> Sqlite:
        self.database = sqlite3.connect(self.output, isolation_level=None)
        self.database.execute("BEGIN")
        self.database.execute(f"DROP TABLE IF EXISTS {self.table}")
        self.database.execute(f"CREATE TABLE {self.table} ({', '.join(COLUMNS)})")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.database.execute("COMMIT" if kind is None else "ROLLBACK")
        self.database.close()

    def write(self, episodes: Sequence[offline.Episode]) -> None:
        for episode in episodes:
            observations = [json.dumps(each.tolist()) for each in episode.get_observations()]
            actions = [json.dumps(each.tolist()) for each in episode.get_actions()]
            ends = [[False] * (len(episode) - 1) + [end] for end in (episode.terminated, episode.truncated)]
            steps = zip(observations[:-1], observations[1:], actions, episode.get_rewards().tolist(), *ends, strict=True)
            rows = ((episode.eps_id, t, *step) for t, step in enumerate(steps, episode.t_started))
            self.database.executemany(f"INSERT INTO {self.table} VALUES ({', '.join('?' * len(COLUMNS))})", rows)
