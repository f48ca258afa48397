"""Read HDF5 files of steps: arrays under the names that D4RL, Minari, robomimic, ManiSkill, d3rlpy and tianshou have for them.

A file has arrays with the steps as first axis (D4RL), or such ones in a group an episode: `episode_0` (Minari), `data/demo_0`
(robomimic), `traj_0` (ManiSkill); or one for each episode, `actions_0` (d3rlpy); or it is a replay buffer of tianshou,
`_meta` with the newest rows before the oldest. D4RL's names are those of its `offline_env.py`, their meaning that of
`qlearning_dataset`. Only files with next observations have the one after the last step of a truncated episode; elsewhere row
i+1 follows row i, which after a timeout belongs to another episode. So `new_obs` exists only if the file has it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.arrow import to_arrow
from offline_core.data.episodes.episode_codec import pack
from offline_core.data.episodes.nested import Nested
from offline_core.data.formats.exports.d4rl import INFOS_ARE_MAPS
from offline_core.data.formats.exports.info_arrays import info_rows
from offline_core.data.formats.sources.expansion import Expansion, check_hdf5
from offline_core.data.formats.sources.local_copy import local_file
from offline_core.data.formats.sources.names import named
from offline_core.data.formats.sources.readers import BATCH_BYTES, FileReader, common_length, reader
from offline_core.data.formats.sources.step_reader import with_note
from offline_core.data.formats.sources.whole_episodes import canonical, episode_steps, id_in_file, joined
from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import CorruptFileError, SchemaError, SpaceError
from offline_core.runtime.extras import require_extra

_SCALARS = (columns.REWARDS, columns.TERMINATEDS, columns.TRUNCATEDS, columns.DONES)
_NO_STEPS = ("metadata", "mask", "meta")
"""Groups about the file and not its steps, unless they are chosen: the recorded policy, robomimic's splits."""
SHOWN = 5
"""Names in a note."""
_BUFFER = "_meta"
_KIND, _ARRAYS = "__data_type__", ("ndarray", "Tensor", "Batch", "dict")
"""tianshou says so what an HDF5 dataset is; the others are pickles."""
_PART_OF_TUPLE = re.compile(r"_index_\d+")


@reader("hdf5", suffixes=(".hdf5", ".h5", ".hdf"))
@dataclass(frozen=True)
class Hdf5File(FileReader):
    """One file, on a local disk or from a copy there.

    `infos/qpos` becomes column `infos_qpos`, except in files of `exports/d4rl.py`, where it is part of `infos`. A group of
    observations becomes a struct. Columns are chosen by their names in the file, or in the group of an episode: arrays
    (`infos/qpos`) and groups.
    """

    pushes: ClassVar[tuple[str, ...]] = ("columns",)

    def read(self) -> Iterator[pa.Table]:
        """See `FileReader`; flat files have no `eps_id`: episodes end where a flag is set."""
        with _opened(self.location) as (file, size):
            check_hdf5(file, Expansion(self.uri, size, self.max_expansion))
            if (episodes := _episodes(file, self.uri)) is not None:
                yield from joined(self._of_episodes(*episodes), BATCH_BYTES)
            else:
                yield from self._flat(file)

    def _flat(self, file: Any) -> Iterator[pa.Table]:
        arrays = self._columns(file.get(_BUFFER, file))
        alone = [name for name, tree in arrays.items() if not isinstance(tree, dict | tuple) and tree.shape == ()]
        arrays = {name: tree for name, tree in arrays.items() if name not in alone}
        note = f"{', '.join(alone)} of {self.uri} are left out: one value for all steps." if alone else None
        leaves = {path: leaf for name, tree in arrays.items() for path, leaf in nested.flatten(tree, name).items()}
        count = common_length(leaves, self.uri)
        width = sum(leaf.dtype.itemsize * leaf.size for leaf in leaves.values()) // max(1, count)
        step = max(1, BATCH_BYTES // max(1, width))
        is_buffer = _BUFFER in file
        parts = _in_order(file, count, self.uri) if is_buffer else {(0, count): True}
        for first, last in parts:
            for start in range(first, last, step):
                rows = slice(start, min(start + step, last))
                batch = {name: _read(tree, name, rows) for name, tree in arrays.items()}
                if is_buffer:
                    is_first = np.arange(rows.start, rows.stop) == (first if parts[first, last] else -1)
                    batch[columns.IS_FIRST] = pa.array(is_first)
                table = pa.table(batch)
                yield table if note is None else with_note(table, note)

    def _of_episodes(self, groups: dict[str, Any], others: list[str]) -> Iterator[pa.Table]:
        if others:
            left_out = f"{', '.join(others[:SHOWN])} of {self.uri} are left out: groups without actions."
        for name, group in groups.items():
            arrays = self._columns(group, is_episode=True)
            values = {key: nested.map_leaves(lambda leaf: _values(leaf, ...), tree) for key, tree in arrays.items()}
            steps, notes = episode_steps(values, id_in_file(self.uri, name))
            notes += [left_out] if others else []
            table = pa.table({key: to_arrow(_plain(tree, key), key) for key, tree in steps.items()})
            yield with_note(table, " ".join(notes)) if notes else table

    def _columns(self, group: Any, *, is_episode: bool = False) -> dict[str, Nested]:
        """Return the HDF5 datasets by the names of their columns, nested as their groups are."""
        if missing := [name for name in self.own_columns or () if name not in group]:
            raise SchemaError(f"{self.uri} has no {', '.join(missing)}; it has {', '.join(group)}.")
        roles = canonical(group)
        needed = (columns.OBS, columns.ACTIONS, *(() if is_episode else (columns.REWARDS,)))
        if lacking := [role for role in needed if role not in roles.values()]:
            raise SchemaError(
                f"{self.uri} is not laid out like D4RL's files, or those of Minari, robomimic or tianshou: it has "
                f"{', '.join(group)} and lacks {', '.join(lacking)}."
            )
        trees: dict[str, Nested] = {}
        for name, value in group.items():
            role, is_array = roles.get(name, name), hasattr(value, "shape")
            is_about = name in _NO_STEPS and (not is_array or name == _NO_STEPS[0]) and name not in (self.own_columns or ())
            if is_about or getattr(value, "attrs", {}).get(_KIND, "ndarray") not in _ARRAYS:
                continue
            if not is_array and role in _SCALARS:
                raise SchemaError(
                    f"{self.uri} has a group of arrays as {name!r}, which must be one array; rename it in the file."
                )
            tree = _tree(value, name, self.own_columns)
            is_whole = name in roles or is_array or (name == columns.INFOS and getattr(group, "attrs", {}).get(INFOS_ARE_MAPS))
            if is_whole and nested.leaves(tree):
                flat = {role: tree}
            else:
                flat = {path.replace(nested.PATH_SEPARATOR, "_"): leaf for path, leaf in nested.flatten(tree, name).items()}
            if twice := trees.keys() & flat.keys():
                raise SchemaError(f"{self.uri} has two columns {', '.join(sorted(twice))}; rename one of them in the file.")
            trees |= flat
        return trees


def _tree(value: Any, path: str, chosen: Collection[str] | None) -> Nested:
    """The chosen HDF5 datasets at a path and below it."""
    if value is None:
        raise KeyError(f"{path} is a link to nothing")
    chosen = None if chosen is None or path in chosen else chosen
    if hasattr(value, "shape"):
        return value if chosen is None else {}
    if not hasattr(value, "items"):  # a type of its own, in HDF5's terms
        return {}
    below = {name: _tree(child, f"{path}/{name}", chosen) for name, child in value.items()}
    below = {name: child for name, child in below.items() if nested.leaves(child)}
    if below and all(map(_PART_OF_TUPLE.fullmatch, below)):  # Minari's name for a part of a tuple
        return tuple(below[f"_index_{i}"] for i in range(len(below)))
    return below


@contextlib.contextmanager
def _opened(location: Location) -> Iterator[tuple[Any, int]]:
    """(the file, its bytes)"""
    with require_extra("hdf5"):
        import h5py
    with local_file(location) as local:
        with storage_errors("read", location.uri):
            size = os.path.getsize(local.path)
        with h5py.File(local.path, "r") as file:  # by its path: h5py keeps a damaged stream, and crashes at the end
            yield file, size


def _episodes(file: Any, uri: str) -> tuple[dict[str, Any], list[str]] | None:
    """(the groups that are episodes, sorted by number; the names of other groups next to them); None if the file is flat."""
    if "columns" in file and "num_episodes" in file:
        return _of_d3rlpy(file, uri), []
    for base in (file, file.get("data")):
        if not hasattr(base, "items") or named(columns.ACTIONS, base):
            continue
        groups = {name: group for name, group in base.items() if hasattr(group, "items") and named(columns.ACTIONS, group)}
        if groups and _BUFFER not in groups:
            others = [name for name, group in base.items() if hasattr(group, "items") and name not in (*groups, *_NO_STEPS)]
            return dict(
                sorted(groups.items(), key=lambda item: [int(part) for part in re.findall(r"\d+", item[0])] or [0])
            ), others
    return None


def _of_d3rlpy(file: Any, uri: str) -> dict[str, Any]:
    """Return the arrays of each episode, which are `<name>_<episode>`, and those of a tuple `<name>_<episode>_<part>`.

    Raises:
        CorruptFileError: there are no episodes, or not as many as the file says.
    """
    names, count = file["columns"].asstr()[()].tolist(), int(file["num_episodes"][()])
    episodes: dict[str, Any] = {}
    for number in range(count if names else 0):
        parts = {name: file.get(f"{name}_{number}") for name in names}
        for name in (name for name, array in parts.items() if array is None):
            paths = (f"{name}_{number}_{part}" for part in itertools.count())
            parts[name] = {f"_index_{i}": file[path] for i, path in enumerate(itertools.takewhile(file.__contains__, paths))}
        if lacking := [name for name, part in parts.items() if part == {}]:
            raise CorruptFileError(f"{uri} says {count:,} episodes, and episode {number} has no {', '.join(lacking)}.", uri=uri)
        episodes[str(number)] = parts
    if not episodes:
        raise CorruptFileError(f"{uri} holds no episode: it names no columns, or none.", uri=uri)
    return episodes


def _in_order(file: Any, count: int, uri: str) -> dict[tuple[int, int], bool]:
    """Map ranges of rows of a replay buffer to whether an environment begins there. For each environment, the oldest is first.

    Raises:
        SchemaError: the buffer does not say how full it is.
    """
    try:
        if "_lengths" in file:
            starts, sizes, newest = (file[name][()].tolist() for name in ("_offset", "_lengths", "last_index"))
            spans = [*zip(starts, [*starts[1:], count], sizes, [last + 1 for last in newest], strict=True)]
        else:
            at = file.attrs.get("_index", file.attrs.get("_insertion_idx", 0))
            spans = [(0, count, int(file.attrs["_size"]), int(at))]
        is_whole = all(0 <= start <= row <= stop <= count and 0 <= size <= stop - start for start, stop, size, row in spans)
    except (KeyError, TypeError, ValueError):
        is_whole = False
    if not is_whole:
        raise SchemaError(
            f"{uri} has {_BUFFER} and does not say, as buffers of tianshou do, which rows are filled; save the arrays."
        )
    begins: dict[tuple[int, int], bool] = {}
    for start, stop, size, next_row in spans:
        ranges = [(start, start + size)] if size < stop - start else [(next_row, stop), (start, next_row)]
        ranges = [span for span in ranges if span[1] > span[0]]
        begins |= {span: span == ranges[0] for span in ranges}
    return begins


def _values(leaf: Any, rows: Any) -> np.ndarray:
    import h5py

    if leaf.dtype.kind != "O":
        return np.asarray(leaf[rows])
    path = leaf.name.lstrip("/")
    if h5py.check_string_dtype(leaf.dtype) is None:
        raise SpaceError(f"{path} has arrays of several lengths, or references; each step needs the same numbers, or text.")
    try:
        return np.asarray(leaf.asstr("utf-8")[rows], np.str_)  # also of text that is declared as ASCII
    except UnicodeDecodeError as error:
        raise SpaceError(f"{path} has text that is not UTF-8: {error}.") from error


def _read(tree: Nested, name: str, rows: slice) -> pa.Array:
    arrays = nested.map_leaves(lambda leaf: _values(leaf, rows), tree)
    if name == columns.INFOS and isinstance(tree, dict):
        return pa.array([pack(info, where=name) for info in info_rows(arrays, rows.stop - rows.start)], pa.binary())
    return to_arrow(_plain(arrays, name), name)


def _plain(arrays: Nested, name: str) -> Nested:
    """Some files keep numbers as (N, 1), and D4RL itself reads them as (N,)."""
    return arrays[:, 0] if name in _SCALARS and arrays.ndim == 2 and arrays.shape[1] == 1 else arrays
