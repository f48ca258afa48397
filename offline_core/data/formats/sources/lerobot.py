"""Read LeRobot datasets, versions 2.0 to 3.0 of their format: the Parquet files below `data/`, without cameras.

Format: `exports/lerobot.py`; versions 2 have a file an episode and the same columns. LeRobot has no observation after the last
step. Exports of this package keep it in `meta/episodes`, with infos, ids and both flags, and are read back exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.datasets.about import About
from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.arrow import from_arrow, to_arrow
from offline_core.data.episodes.episode_codec import unpack
from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.spaces import StoredSpaces, space_leaves, space_metadata, spaces_of
from offline_core.data.formats.exports.lerobot import README, about_of
from offline_core.data.formats.packed import read_foreign_column
from offline_core.data.formats.sources.readers import SOURCE_ROW, FileReader, reader
from offline_core.data.formats.sources.scans import ParquetFile
from offline_core.data.formats.sources.step_reader import Unreadable
from offline_core.data.formats.sources.whole_episodes import with_details
from offline_core.data.store.location import Location
from offline_core.data.store.parquet_files import open_parquet, parquet_errors, read_footer
from offline_core.errors import CorruptFileError, DatasetNotFoundError, SchemaError, within

INFO = "meta/info.json"
_VERSIONS = ("v2.", "v3.")
_PICTURES = ("video", "image")

_FINAL = "final_"
_OPTIONAL = (columns.AGENT_ID, columns.MODULE_ID, columns.INFOS, columns.CUSTOM_DATA)

REWARD, DONE, SUCCESS = "next.reward", "next.done", "next.success"
TERMINATED, TRUNCATED = "next.terminated", "next.truncated"
_OBSERVATION, _STATE, _ACTION, _EXTRA = "observation", "observation.state", "action", "extra."
_NUMBERS = ("timestamp", "frame_index", "episode_index", "index")
TASK = "task_index"
_ENDS = (DONE, TERMINATED, TRUNCATED)


@reader("lerobot", folder=lambda names: INFO in names)
@dataclass(frozen=True)
class LeRobotDataset(FileReader):
    """One dataset: the folder that holds `meta/` and `data/`. Tables have whole episodes under canonical names."""

    @property
    def notes(self) -> list[str]:
        """What the tables lack or assume, one sentence each.

        Raises:
            DataError: the dataset does not list its features.
        """
        features = self._features()
        notes = []
        if pictures := [name for name, feature in features.items() if feature["dtype"] in _PICTURES]:
            notes.append(f"Cameras of {self.uri} are left out: {', '.join(pictures)}.")
        if REWARD not in features:
            notes.append(f"{self.uri} has no {REWARD}: all rewards are 0.")
        if TERMINATED in features or TRUNCATED in features:
            return notes
        if DONE not in features:
            notes.append(f"{self.uri} has no {DONE}: it does not say how its episodes end (episodes.incomplete).")
        elif SUCCESS in features:
            notes.append(f"Episodes of {self.uri} that end without {SUCCESS} are truncated, the others terminated.")
        return notes

    @property
    def about(self) -> About:
        """What its card says."""
        card = self.location.child(README)
        return about_of(card.read().decode(errors="replace")) if card.is_file() else About()

    def read(self) -> Iterator[pa.Table | Unreadable]:
        """See `FileReader`."""
        features = self._features()
        names = [name for name, feature in features.items() if feature["dtype"] not in _PICTURES]
        known, steps = _exported(self.location), 0
        several_tasks = self._info().get("total_tasks", 1) > 1
        for file in self._files():
            spaces = spaces_of(read_footer(file).schema.to_arrow_schema())
            for rows in self._whole_episodes(file, names):
                steps += rows.num_rows
                with within(uri=self.uri):
                    yield _table(rows, known, spaces, several_tasks=several_tasks)
        if steps != (expected := self._info().get("total_frames", steps)):
            raise CorruptFileError(f"{self.uri} has {steps:,} frames, and {INFO} says {expected:,}: fetch its files again.")

    def _whole_episodes(self, file: Location, names: list[str]) -> Iterator[pa.Table]:
        """Rows of a file in tables of whole episodes."""
        rest: pa.Table | None = None
        for batch in ParquetFile(file, tuple(names), max_expansion=self.max_expansion).read():
            if isinstance(batch, Unreadable):
                raise batch.located_error
            rows = batch.drop_columns([SOURCE_ROW])
            rows = rows if rest is None else pa.concat_tables([rest, rows])
            numbers = rows["episode_index"].to_numpy()
            last = int(np.argmax(numbers == numbers[-1]))
            if last:
                yield rows.slice(0, last)
            rest = rows.slice(last)
        if rest is not None:
            yield rest

    def _files(self) -> list[Location]:
        data = self.location.child("data")
        files = [data.child(name) for name in data.files() if name.endswith(".parquet")]
        if not files:
            raise DatasetNotFoundError(f"There are no Parquet files in {data.uri}: fetch the dataset with its data.")
        return files

    def _features(self) -> dict[str, Any]:
        features: Any = self._info().get("features")
        try:
            by_name = {str(name): dict(feature, dtype=str(feature["dtype"])) for name, feature in features.items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptFileError(f"{self.uri}/{INFO} does not list the features of the dataset: {error!r}.") from error
        if not any(name == "action" or name.startswith("action.") for name in by_name):
            raise SchemaError(f"{self.uri} has no feature action; it has {', '.join(by_name)}.")
        return by_name

    def _info(self) -> dict[str, Any]:
        file = self.location.child(INFO)
        if not file.is_file():
            raise DatasetNotFoundError(
                f"There is no LeRobot dataset at {self.uri}; name the folder that holds meta/ and data/."
            )
        try:
            info = dict(json.loads(file.read()))
        except (TypeError, ValueError) as error:
            raise CorruptFileError(f"{file.uri} is not a JSON object: {error}.") from error
        if not str(version := info.get("codebase_version")).startswith(_VERSIONS):
            raise CorruptFileError(
                f"{self.uri} has version {version} of LeRobot's format; versions 2.0 to 3.0 are read. Convert it with LeRobot."
            )
        return info


def _table(rows: pa.Table, known: pa.Table | None, spaces: StoredSpaces, *, several_tasks: bool) -> pa.Table:
    """Steps of whole episodes under canonical names; those of an export of this package as they were before it.

    Arguments:
        known: see `_exported`.
        spaces: in the metadata of the file, if this package wrote it.

    Raises:
        DataError: a column is missing, or cannot be read.
    """
    arrays = {name: read_foreign_column(rows, name) for name in rows.column_names}
    if missing := {"episode_index", "frame_index"} - arrays.keys():
        raise SchemaError(f"There is no feature {', '.join(sorted(missing))}, which every LeRobot dataset has.")
    numbers = arrays["episode_index"]
    is_last = np.append(numbers[1:] != numbers[:-1], True)
    ends = _ends(arrays, is_last)
    parts = [name for name in arrays if name.split(".")[0] in (_OBSERVATION, _ACTION)]
    others = {*parts, *_NUMBERS, *_ENDS, REWARD} | ({TASK} if not several_tasks else set())
    steps = {
        columns.EPS_ID: numbers.astype(np.str_),
        columns.T: arrays["frame_index"],
        columns.OBS: _tree(arrays, _OBSERVATION, _STATE, spaces[0]),
        columns.ACTIONS: _tree(arrays, _ACTION, _ACTION, spaces[1]),
        columns.REWARDS: arrays.get(REWARD, np.zeros(rows.num_rows, np.float32)),
        **({} if ends is None else dict(zip((columns.TERMINATEDS, columns.TRUNCATEDS), ends, strict=True))),
        **{_extra(name): array for name, array in arrays.items() if name not in others},
    }
    if known is None:
        return pa.table({name: to_arrow(tree, name) for name, tree in steps.items()})
    last = np.flatnonzero(is_last)
    places = pc.index_in(pa.array(numbers[last]), known["episode_index"].combine_chunks())
    if places.null_count:
        number = numbers[last][places.is_null().to_numpy(zero_copy_only=False)][0]
        raise CorruptFileError(f"meta/episodes has no row for episode {number}: fetch the files again.")
    known = known.take(places)
    final = {name: from_arrow(known[name], name) for name in known.column_names if name.startswith(_FINAL)}
    final = _tree({name.removeprefix(_FINAL): array for name, array in final.items()}, _OBSERVATION, _STATE, spaces[0])
    following = np.arange(1, len(numbers) + 1)
    following[last] = len(numbers) + np.arange(len(last))
    episodes, lengths = known.select([columns.EPS_ID, *_OPTIONAL]).to_pylist(), np.diff(last, prepend=-1).tolist()
    steps[columns.EPS_ID] = np.repeat([episode[columns.EPS_ID] for episode in episodes], lengths)
    steps[columns.NEW_OBS] = nested.map_leaves(
        lambda obs, after: np.concatenate([obs, after])[following], steps[columns.OBS], final
    )
    for episode in episodes:
        episode |= {name: unpack(episode[name]) for name in (columns.INFOS, columns.CUSTOM_DATA) if episode[name] is not None}
    table = pa.table({name: to_arrow(tree, name) for name, tree in steps.items()}, metadata=space_metadata(*spaces))
    return with_details(table, lengths, episodes)


def _exported(dataset: Location) -> pa.Table | None:
    """The columns that an export of this package adds to `meta/episodes`; None if another program wrote it."""
    tables: list[pa.Table] = []
    folder = dataset.child("meta/episodes")
    for file in (folder.child(name) for name in folder.files() if name.endswith(".parquet")):
        with parquet_errors(file.uri), open_parquet(file) as parquet:
            names = parquet.schema_arrow.names
            final = [name for name in names if name.startswith(f"{_FINAL}{_OBSERVATION}")]
            wanted = ["episode_index", columns.EPS_ID, columns.TERMINATED, columns.TRUNCATED, *_OPTIONAL, *final]
            if not final or not {*wanted} <= {*names}:
                return None
            tables.append(parquet.read(columns=wanted).select(wanted).replace_schema_metadata(None))
    return pa.concat_tables(tables) if tables else None


def _extra(name: str) -> str:
    own = name.removeprefix(_EXTRA)
    return name if own in columns.STEP_COLUMNS else own


def _ends(arrays: dict[str, np.ndarray], is_last: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """(terminated, truncated), (N,) each, None without flags; with done alone, success (if recorded) means terminated."""
    done = arrays[DONE].astype(bool) if DONE in arrays else None
    truncated = arrays[TRUNCATED].astype(bool) if TRUNCATED in arrays else None
    if TERMINATED in arrays:
        terminated = arrays[TERMINATED].astype(bool)
        return terminated, is_last & ~terminated if truncated is None else truncated
    if truncated is not None:
        return (is_last if done is None else done) & ~truncated, truncated
    if done is None:
        return None
    if SUCCESS in arrays:
        return done & arrays[SUCCESS].astype(bool), done & ~arrays[SUCCESS].astype(bool)
    return done, np.zeros(len(is_last), bool)


def _tree(arrays: dict[str, np.ndarray], prefix: str, alone: str, space: gym.Space[Any] | None) -> Nested:
    """Return the features of an observation or action as one tree, structured by the space if known, else by names."""
    if space is not None:
        leaves = space_leaves(space, prefix)
        stored = {path: alone if path == prefix else path.replace(nested.PATH_SEPARATOR, ".") for path in leaves}
        if missing := sorted(set(stored.values()) - arrays.keys()):
            raise SchemaError(f"There is no feature {', '.join(missing)}, which the space {space} needs.")
        return nested.unflatten({path: _shaped(arrays[stored[path]], leaf) for path, leaf in leaves.items()}, prefix, space)
    matching = {name: array for name, array in arrays.items() if name == prefix or name.startswith(f"{prefix}.")}
    if not matching:
        raise SchemaError(f"There is no feature {prefix} except cameras; it has {', '.join(arrays)}.")
    if len(matching) == 1 and alone in matching:
        return matching[alone]
    return {name.removeprefix(prefix).removeprefix(".") or prefix: array for name, array in matching.items()}


def _shaped(array: np.ndarray, space: gym.Space[Any]) -> np.ndarray:
    """Restore the shape: LeRobot writes a vector of one number as a number."""
    shape = space.shape or ()
    return array.reshape(len(array), *shape) if math.prod(array.shape[1:]) == math.prod(shape) else array
