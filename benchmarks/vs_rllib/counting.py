"""What is on disk, and what was learned from: counted from the files alone, for both sides by the same code.

Steps are frames with the columns of `STEP`, `starts` and `done`; two rows that agree in all of `STEP` are the same step.
No state of CartPole comes twice in an episode.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds

from offline_core.data.episodes import Episode, decode
from offline_core.data.episodes.unpickle import load_array

STEP = ["episode", "before", "action", "after"]
"""Id, bytes of the observation, action, bytes of the next observation."""
LARGEST_START = 0.05
"""CartPole begins with four numbers up to this, and its first push makes one of them larger."""


def steps_of(folder: str) -> pl.DataFrame:
    """All rows of all Parquet files in the folder, as often as they are there; episodes or a table."""
    files = sorted(str(path) for path in Path(folder).rglob("*.parquet"))
    dataset = ds.dataset(files, format="parquet")
    if "item" in dataset.schema.names:
        items = dataset.to_table(columns=["item"])["item"]
        return of_episodes(decode(item.as_py()) for item in items)
    return of_table(dataset.to_table(columns=["eps_id", "obs", "actions", "new_obs", "terminateds", "truncateds"]))


def of_episodes(episodes: Iterable[Episode]) -> pl.DataFrame:
    """A row a step."""
    parts = [
        frame(
            np.repeat(episode.eps_id, len(episode)),
            np.asarray(episode.observations)[:-1],
            np.asarray(episode.actions),
            np.asarray(episode.observations)[1:],
            np.arange(len(episode)) == len(episode) - 1 if episode.is_done else np.zeros(len(episode), bool),
        )
        for episode in episodes
    ]
    return pl.concat(parts)


def of_table(table: pa.Table) -> pl.DataFrame:
    """The rows of a table, its observations packed as RLlib packs them or not."""
    done = np.asarray(table["terminateds"]) | np.asarray(table["truncateds"])
    obs, new_obs = vectors(table["obs"]), vectors(table["new_obs"])
    return frame(table["eps_id"].to_numpy(), obs, np.asarray(table["actions"]), new_obs, done)


def vectors(column: pa.ChunkedArray) -> np.ndarray:
    """(N, D) float32."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        encoded = column.combine_chunks().dictionary_encode()
        distinct = [load_array(lz4.frame.decompress(base64.b64decode(text))) for text in encoded.dictionary.to_pylist()]
        return np.asarray(np.stack(distinct)[encoded.indices.to_numpy()], np.float32)
    array = column.combine_chunks()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return np.asarray(array.flatten(), np.float32).reshape(len(array), -1)


def frame(episode: Any, before: np.ndarray, action: Any, after: np.ndarray, done: Any) -> pl.DataFrame:
    """Steps out of ids, (N, D) observations, actions, (N, D) next observations and flags."""
    return pl.DataFrame(
        {
            "episode": pl.Series(episode, dtype=pl.String),
            "before": keys(before),
            "action": pl.Series(action, dtype=pl.Int64),
            "after": keys(after),
            "starts": pl.Series((np.abs(before) <= np.float32(LARGEST_START)).all(axis=1)),
            "done": pl.Series(done, dtype=pl.Boolean),
        }
    )


def keys(vectors: np.ndarray) -> pl.Series:
    """(N,) the bytes of each row as float32; -0.0 is 0.0."""
    rows = np.ascontiguousarray(vectors, np.float32) + np.float32(0)
    return pl.Series(rows.view(f"V{rows.shape[1] * rows.itemsize}")[:, 0].tolist(), dtype=pl.Binary)


def on_disk(steps: pl.DataFrame, *, asked: int) -> dict[str, int]:
    """What a recording left of the episodes it was asked for.

    An episode is complete if its steps follow each other in one piece, from a start to an end.
    """
    distinct = steps.unique(STEP)
    episodes = whole(distinct)
    complete = int(episodes["whole"].sum())
    ends = steps.filter("done")
    return {
        "rows": len(steps),
        "steps": len(distinct),
        "duplicate_rows": len(steps) - len(distinct),
        "episodes": complete,
        "episodes_lost": max(0, asked - complete),
        "episodes_incomplete": len(episodes) - complete,
        "episode_copies": len(ends) - ends["episode"].n_unique(),
    }


def whole(distinct: pl.DataFrame) -> pl.DataFrame:
    """(episode, whole) for the distinct steps of each episode."""
    heads = distinct.join(distinct, left_on=["episode", "before"], right_on=["episode", "after"], how="anti", nulls_equal=True)
    tails = distinct.join(distinct, left_on=["episode", "after"], right_on=["episode", "before"], how="anti", nulls_equal=True)
    counts = distinct.group_by("episode", maintain_order=True).agg(pl.col("done").sum().alias("ends"))
    pieces = {"heads": heads, "starts": heads.filter("starts"), "tails": tails, "ended_tails": tails.filter("done")}
    for name, rows in pieces.items():
        counts = counts.join(rows.group_by("episode").len(name), on="episode", how="left", nulls_equal=True)
    is_whole = pl.all_horizontal(pl.col(*pieces, "ends") == 1).fill_null(False)
    return counts.select("episode", is_whole.alias("whole"))


def converted(source: pl.DataFrame, result: pl.DataFrame) -> dict[str, int]:
    """What a conversion made of the distinct steps of its source."""
    wanted, made = source.unique(STEP), result.unique(STEP)
    kept = len(made.join(wanted, on=STEP, how="semi", nulls_equal=True))
    return {
        "source_rows": len(source),
        "source_steps": len(wanted),
        "rows": len(result),
        "steps_kept": kept,
        "steps_lost": len(wanted) - kept,
        "steps_made_up": len(made) - kept,
        "duplicate_rows": len(result) - len(made),
        "episodes_incomplete": int((~whole(made)["whole"]).sum()),
    }


def learned_from(recording: pl.DataFrame, batches: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Which steps of the recording are in batches, of `obs` (N, D) and `actions` (N,), one behind the other."""
    seen = pl.DataFrame({"before": keys(batches["obs"]), "action": pl.Series(batches["actions"], dtype=pl.Int64)})
    distinct, steps = seen.unique(), recording.unique(["before", "action"])
    known = len(distinct.join(steps, on=["before", "action"], how="semi"))
    return {"rows": len(seen), "steps_seen": known, "steps": len(steps), "steps_unknown": len(distinct) - known}


def files_of(folder: str) -> dict[str, int]:
    """Parquet files and their bytes."""
    sizes = [os.path.getsize(path) for path in Path(folder).rglob("*.parquet")]
    return {"files": len(sizes), "bytes": sum(sizes)}
