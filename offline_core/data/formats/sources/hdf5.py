"""Read HDF5 files in D4RL's layout: one array per column, with the steps as first axis.

Format: D4RL (Fu et al., 2020), `d4rl/offline_env.py` for the names, `qlearning_dataset` for their meaning. Only files with
`next_observations` have the observation after the last step of a truncated episode; elsewhere row i+1 follows row i, which
after a timeout belongs to another episode. So `new_obs` exists only if the file has it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.arrow import to_arrow
from offline_core.data.episodes.codec import pack
from offline_core.data.episodes.nested import Nested
from offline_core.data.formats.exports.d4rl import INFOS_ARE_MAPS
from offline_core.data.formats.exports.info_arrays import info_rows
from offline_core.data.formats.sources.expansion import Expansion, check_hdf5
from offline_core.data.formats.sources.local_copy import local_stream
from offline_core.data.formats.sources.located_reader import BATCH_BYTES, LocatedReader, common_length
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError, SchemaError, SpaceError
from offline_core.runtime.extras import require_extra

NAMES = {
    "observations": columns.OBS,
    "actions": columns.ACTIONS,
    "rewards": columns.REWARDS,
    "next_observations": columns.NEW_OBS,
    "terminals": columns.TERMINATEDS,
    "timeouts": columns.TRUNCATEDS,
}
"""D4RL's names → canonical names; other columns keep theirs."""

_REQUIRED = ("observations", "actions", "rewards", "terminals")
_FLAGS = (columns.TERMINATEDS, columns.TRUNCATEDS)
_METADATA = "metadata"
"""A group about the file and not its steps: the recorded policy and its weights."""


@dataclass(frozen=True)
class D4rlFile(LocatedReader):
    """One HDF5 file, read by ranges of rows, on a local disk or from a copy there.

    `infos/qpos` becomes column `infos_qpos`, except in files of `exports/d4rl.py`, where it is part of `infos`. A group of
    observations becomes a struct.
    """

    columns: tuple[str, ...] | None = None
    """Only these, by their names in the file: arrays (`infos/qpos`) and groups."""

    def batches(self) -> Iterator[pa.Table]:
        """See `StepReader`; no `eps_id`: episodes end where a flag is set."""
        with _opened(self.location) as (file, size):
            check_hdf5(file, Expansion(self.uri, size, self.max_expansion))
            arrays = _columns(file, self.columns, self.uri)
            leaves = {path: leaf for name, tree in arrays.items() for path, leaf in nested.flatten(tree, name).items()}
            count = common_length(leaves, self.uri)
            width = sum(leaf.dtype.itemsize * leaf.size for leaf in leaves.values()) // max(1, count)
            step = max(1, BATCH_BYTES // max(1, width))
            for start in range(0, count, step):
                rows = slice(start, min(start + step, count))
                yield pa.table({name: _read(tree, name, rows) for name, tree in arrays.items()})


@contextlib.contextmanager
def _opened(location: Location) -> Iterator[tuple[Any, int]]:
    """(the file, its bytes)"""
    with require_extra("hdf5"):
        import h5py
    with local_stream(location) as stream, _hdf5_errors(location.uri), h5py.File(stream, "r") as file:
        yield file, stream.size()


@contextlib.contextmanager
def _hdf5_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except SpaceError as error:
        raise SpaceError(f"{uri}: {error} Choose other columns by source.columns.") from error
    except (OSError, RuntimeError, KeyError) as error:  # raised by h5py on damage
        raise CorruptFileError(f"{uri} is not an HDF5 file, or damaged: {str(error).rstrip('.')}. Fetch it again.") from error


def _columns(file: Any, chosen: tuple[str, ...] | None, uri: str) -> dict[str, Nested]:
    """HDF5 datasets, nested as their groups are, by the names of their columns."""
    import h5py

    if missing := [name for name in _REQUIRED if name not in file]:
        raise SchemaError(f"{uri} is not laid out like D4RL's files: it has {', '.join(file)} and lacks {', '.join(missing)}.")
    if missing := [name for name in chosen or () if name not in file]:
        raise SchemaError(f"{uri} has no {', '.join(missing)}; it has {', '.join(file)}.")
    found: dict[str, Nested] = {}
    for name, value in file.items():
        if name == _METADATA:
            continue
        is_group = isinstance(value, h5py.Group)
        if is_group and NAMES.get(name) in (columns.REWARDS, *_FLAGS):
            raise SchemaError(f"{uri} has a group of arrays as {name!r}, which must be one array; rename it in the file.")
        whole = chosen is None or name in chosen
        if name == columns.INFOS and is_group and whole and file.attrs.get(INFOS_ARE_MAPS):
            found[columns.INFOS] = _tree(value)
            continue
        if name not in NAMES and is_group:
            paths = nested.flatten(_tree(value), name)
            flat = {p.replace(nested.PATH_SEPARATOR, "_"): leaf for p, leaf in paths.items() if whole or p in (chosen or ())}
        else:
            flat = {NAMES.get(name, name): _tree(value)} if whole else {}
        if twice := found.keys() & flat.keys():
            raise SchemaError(f"{uri} has two columns {', '.join(sorted(twice))}; rename one of them in the file.")
        found |= flat
    return found


def _tree(value: Any) -> Nested:
    import h5py

    return {name: _tree(child) for name, child in value.items()} if isinstance(value, h5py.Group) else value


def _values(leaf: Any, rows: slice) -> np.ndarray:
    import h5py

    if leaf.dtype.kind != "O":
        return leaf[rows]  # type: ignore[no-any-return]
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
    if name in (columns.REWARDS, *_FLAGS) and arrays.ndim == 2 and arrays.shape[1] == 1:
        arrays = arrays[:, 0]  # some files keep these as (N, 1), and D4RL itself reads them so
    return to_arrow(arrays, name)
