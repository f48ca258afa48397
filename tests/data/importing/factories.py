"""Rows of steps as plain Python has them, each with a tag of its own, so that tests can see where every row went."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode
from offline_core.data.formats.sources.readers import SOURCE_ROW
from offline_core.data.importing.assembly import assemble
from offline_core.data.importing.config import EpisodesConfig, ImportConfig
from offline_core.data.importing.episode_ids import SOURCE_FILE, unique_ids
from offline_core.data.importing.importing import import_data
from offline_core.data.importing.losses import with_losses
from offline_core.data.importing.report import Counts, Findings, ImportResult, Place
from offline_core.data.importing.row_columns import RowColumns
from offline_core.data.importing.step_order import order_of

Row = dict[str, Any]

SEED_NAMES = {"obs": "o_t", "actions": "a_t", "rewards": "r_t", "new_obs": "o_tp1", "terminateds": "d_t", "infos": "i_t"}


def steps(eps_id: str, length: int, *, end: str = "T", first_t: int = 0) -> list[Row]:
    """The rows of an episode: observations that no other has, tags `<id><t>`, an end T(erminated), X (truncated) or none."""
    base = float(sum(ord(letter) * 1000 ** (i + 1) for i, letter in enumerate(eps_id)))
    return [
        {
            "eps_id": eps_id,
            "t": first_t + t,
            "obs": [base + t, -t / 2],
            "actions": t % 3,
            "rewards": 1.0 + t,
            "new_obs": [base + t + 1, -(t + 1) / 2],
            "terminateds": end == "T" and t == length - 1,
            "truncateds": end == "X" and t == length - 1,
            "tag": f"{eps_id}{t}",
        }
        for t in range(length)
    ]


def walk(eps_id: str, states: str, *, end: str = "T") -> list[Row]:
    """The rows of an episode that visits these states, a letter each; tags `<id><t>`."""
    rows = steps(eps_id, len(states) - 1, end=end)
    for row, now, then in zip(rows, states[:-1], states[1:], strict=True):
        row |= {"obs": ord(now), "new_obs": ord(then), "actions": 0, "rewards": 0.0}
    return rows


def without(rows: Sequence[Row], *names: str) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def renamed(rows: Sequence[Row], names: dict[str, str]) -> list[Row]:
    return [{names.get(name, name): value for name, value in row.items()} for row in rows]


def shuffled(rows: Sequence[Row], seed: int = 0) -> list[Row]:
    return [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]


def assembled(*files: Sequence[Row], **rules: Any) -> tuple[list[Episode], Counts]:
    """What `assemble` makes of files with these rows; file i is `/d<i>/f`, so each in a folder of its own."""
    table = pa.Table.from_pylist(
        [row | {SOURCE_FILE: number, SOURCE_ROW: i} for number, rows in enumerate(files) for i, row in enumerate(rows)]
    )
    for number, field in enumerate(table.schema):
        if pa.types.is_null(field.type):  # text that is there in no row
            table = table.set_column(number, field.name, table[field.name].cast(pa.string()))
    return assembled_from(table, [f"/d{number}/f" for number in range(len(files))], **rules)


def assembled_from(
    table: pa.Table, uris: list[str], *, lost: Sequence[tuple[int, int]] = (), **rules: Any
) -> tuple[list[Episode], Counts]:
    """What `assemble` makes of a table of rows out of these files, of which rows at (file, row) could not be read."""
    config = TypeAdapter(EpisodesConfig).validate_python(rules)
    how: dict[str, Any] = {
        "spaces": (None, None),
        "findings": Findings("fail"),
        "mapping": {},
        "in_order": RowColumns().in_order,
    }
    rows = with_losses(unique_ids(table, config, uris), [Place(*position) for position in lost])
    made = assemble(rows, config, order=order_of(config, table), files=uris, **how)
    made.counts.episodes, made.counts.steps = len(made.episodes), sum(map(len, made.episodes))
    balanced(made.counts)
    return made.episodes, made.counts


def summary(found: Sequence[Episode]) -> list[tuple[str, str, str]]:
    """(id, tags, how it ended) of each; ids without the hash that later parts have."""
    return [(plain(e.eps_id), " ".join(e.extras["tag"].tolist()), end_of(e)) for e in found]


def plain(eps_id: str) -> str:
    return re.sub(r"(@\d+)-[0-9a-f]{8}\b", r"\1", eps_id)


def parts(found: Sequence[Episode]) -> list[tuple[str, str]]:
    """(tags, how it ended) of each."""
    return [(tags, end) for _, tags, end in summary(found)]


def end_of(episode: Episode) -> str:
    return "T" * episode.terminated + "X" * episode.truncated or "open"


def balanced(counts: Counts) -> None:
    lost = counts.duplicates + counts.dropped_last_steps + counts.dropped_steps + counts.quarantined_rows
    lost += counts.final_observations
    assert counts.rows + counts.stored_rows == counts.steps + lost, counts


def nonzero(counts: Counts) -> dict[str, int]:
    """What there was, but for how many ends terminate, which is there in every source."""
    return {name: value for name, value in counts.model_dump().items() if value and name != "terminations"}


def write_rows(path: Path, rows: Sequence[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def scattered(folder: Path, rows: Sequence[Row], files: int, seed: int | None = None) -> Path:
    """Writes the rows in so many files, shuffled over all of them if there is a seed."""
    lying = list(rows) if seed is None else shuffled(rows, seed)
    for number, part in enumerate(np.array_split(np.arange(len(lying)), files)):
        write_rows(folder / f"{number}.parquet", [lying[i] for i in part])
    return folder


def run_import(source: Path | list[str], output: Path, /, **config: Any) -> tuple[ImportResult, list[Episode]]:
    """The result of an import and the episodes as they are read back."""
    places = source if isinstance(source, list) else str(source)
    result = import_data(ImportConfig.model_validate(config), source=places, output=str(output))
    balanced(result.counts)
    return result, list(open_dataset(result.dataset.uri, result.dataset.version).episodes())


_EPISODES = [steps("a", 5), steps("b", 3, end="X"), steps("c", 1), steps("d", 8), steps("e", 4, end="X")]
ROWS = [row for episode in _EPISODES for row in episode]
"""Of episodes in order."""
TAGS = sorted((" ".join(row["tag"] for row in rows), "X" if rows[-1]["truncateds"] else "T") for rows in _EPISODES)
"""What `parts` has to find in them."""
