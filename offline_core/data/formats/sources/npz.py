"""Read NumPy archives: named arrays with the steps as first axis, or trajectories of imitation and others.

Format: `numpy.savez` and `numpy.savez_compressed`, a zip file of `.npy` members. Arrays of Python objects are pickles, and
are refused. Trajectories are told by an array that says where they end (`indices` of imitation, whose observations are one
longer in each, `episode_ends`, `lengths`), or by two axes: trajectories and steps.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.arrow import to_arrow
from offline_core.data.formats.sources.expansion import Expansion
from offline_core.data.formats.sources.local_copy import local_stream
from offline_core.data.formats.sources.names import ENDS, named, plain
from offline_core.data.formats.sources.readers import BATCH_BYTES, FileReader, common_length, reader
from offline_core.data.formats.sources.step_reader import Recognised, with_note, with_single_values
from offline_core.data.formats.sources.whole_episodes import canonical, episode_steps, id_in_file
from offline_core.errors import SchemaError, UnsafeDataError, first_line

_STARTS = ("indices",)
"""Where all trajectories but the first begin."""
_ENDS = ("episode_ends", "traj_ends", "trajectory_ends")
_LENGTHS = ("lengths", "lens", "episode_lengths", "traj_lengths", "trajectory_lengths")
_IS_LONGER = " Keep the observation after the last step in an array of next observations, not as one more row."


@reader("npz", suffixes=(".npz",))
@dataclass(frozen=True)
class NpzFile(FileReader):
    """One `.npz` file; every array becomes the column of its name, those of trajectories the canonical ones.

    The format cannot be read in parts: all arrays are in memory at once.
    """

    pushes: ClassVar[tuple[str, ...]] = ("columns",)

    def read(self) -> Iterator[pa.Table]:
        """See `FileReader`."""
        with local_stream(self.location) as stream:
            arrays = _arrays(stream, self.own_columns, Expansion(self.uri, stream.size(), self.max_expansion))
        episodes = _episodes(arrays, self.uri)
        table = _rows(arrays, self.uri) if episodes is None else _steps(episodes, self.uri)
        step = max(1, BATCH_BYTES * table.num_rows // max(1, table.nbytes))
        for start in range(0, table.num_rows, step):
            yield table.slice(start, step)


def _rows(arrays: dict[str, np.ndarray], uri: str) -> pa.Table:
    """A row a step, without what Stable-Baselines adds once an episode, `episode_returns`."""
    first = next((arrays[name] for name in named(columns.IS_FIRST, arrays) if arrays[name].ndim), None)
    count = None if first is None else np.count_nonzero(first)
    alone = [name for name, array in arrays.items() if first is not None and array.shape == (count,) != first.shape]
    arrays = {name: array for name, array in arrays.items() if name not in alone}
    whole = _single_values(arrays)
    rows = common_length({name: array for name, array in arrays.items() if name not in whole}, uri, _IS_LONGER)
    placed = {name: at for name, array in whole.items() if (at := _place(name, array, rows)) is not None}
    repeated = {name: np.repeat(array, rows) for name, array in whole.items() if name not in placed}
    table = pa.table({name: to_arrow(array, name) for name, array in (arrays | placed | repeated).items()})
    if whole:
        table = with_note(table, Recognised(_note_on_single([*repeated], [*placed])))
        table = with_single_values(table, [*repeated])
    return with_note(table, f"{', '.join(alone)} of {uri} are left out: one value an episode.") if alone else table


def _single_values(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays that are one value, if others are none.

    Observations, actions and rewards are not among them: as a single value they are a mistake.
    """
    needed = {name for role in (columns.OBS, columns.NEW_OBS, columns.ACTIONS, columns.REWARDS) for name in named(role, arrays)}
    whole = {name: array for name, array in arrays.items() if array.ndim == 0 and name not in needed}
    return whole if any(array.ndim for array in arrays.values()) else {}


def _place(name: str, value: np.ndarray, rows: int) -> np.ndarray | None:
    """(rows,) bool: a single end is one of the last row, a single beginning of the first; None if it is neither.

    Raises:
        SchemaError: it is a text, which would be read in each row.
    """
    ends, begins = any(named(role, [name]) for role in ENDS), bool(named(columns.IS_FIRST, [name]))
    if (ends or begins) and value.dtype.kind not in "biuf":
        raise SchemaError(f"{name} is one value, and a text: save it as true or false, or leave it out.", column=name)
    if not (ends or begins) or value not in (0, 1):
        return None
    return (np.arange(rows) == (rows - 1 if ends else 0)) & bool(value)  # type: ignore[no-any-return]


def _note_on_single(repeated: list[str], placed: list[str]) -> str:
    notes = []
    for names, where in (
        (repeated, "each of its rows gets it"),
        (placed, "an end is one of its last row, and is_first of its first"),
    ):
        if names:
            have = "is one value" if len(names) == 1 else "are one value each"
            notes.append(f"{', '.join(names)} of NPZ files {have}, and not one a step: {where}.")
    return " ".join(notes)


def _steps(episodes: list[dict[str, np.ndarray]], uri: str) -> pa.Table:
    parts = [episode_steps(arrays, id_in_file(uri, str(number))) for number, arrays in enumerate(episodes)]
    notes = dict.fromkeys(note for _, own in parts for note in own)
    names = parts[0][0]
    table = pa.table({name: to_arrow(nested.concatenate([steps[name] for steps, _ in parts]), name) for name in names})
    return with_note(table, " ".join([f"{uri} is read as {len(episodes):,} trajectories.", *notes]))


def _episodes(arrays: dict[str, np.ndarray], uri: str) -> list[dict[str, np.ndarray]] | None:
    """The arrays of each trajectory; None if the arrays have a row a step."""
    roles = {role: name for name, role in canonical(arrays).items()}
    if not {columns.OBS, columns.ACTIONS} <= roles.keys():
        return None
    obs, actions = (arrays[roles[role]] for role in (columns.OBS, columns.ACTIONS))
    rewards = arrays.get(roles.get(columns.REWARDS, ""), np.zeros(0))
    if _is_by_trajectory(obs, actions, rewards) and all(array.shape[:1] == rewards.shape[:1] for array in arrays.values()):
        _check_ends_last(arrays, uri)
        return [{name: array[number] for name, array in arrays.items()} for number in range(len(rewards))]
    bounds = {name: _starts(plain(name), array, len(actions)) for name, array in arrays.items()}
    said = next(((name, starts) for name, starts in bounds.items() if starts is not None), None)
    if said is None:
        return None
    name, starts = said
    count, parts = len(starts), dict[str, list[Any]]()
    for key, array in arrays.items():
        size = len(array) if array.ndim else -1
        if key == name:
            continue
        if size in (len(actions), len(actions) + count):
            parts[key] = np.split(array, starts[1:] + (np.arange(1, count) if size > len(actions) else 0))
        elif size in (count, -1):
            parts[key] = [array] * count if size < 0 else [*array]
        else:
            raise SchemaError(
                f"{uri} has {len(actions)} actions of {count} trajectories, as {name} says, and {size} rows of {key}; choose "
                "the arrays of steps by source.columns."
            )
    return [{key: part[number] for key, part in parts.items()} for number in range(count)]


def _check_ends_last(arrays: dict[str, np.ndarray], uri: str) -> None:
    """Raises:
    SchemaError: what would be trajectories ends before its last step, as steps of several environments do.
    """
    for role in ENDS:
        for name in named(role, arrays):
            if arrays[name].ndim > 1 and np.any(arrays[name][:, :-1]):
                raise SchemaError(
                    f"{uri} has {name} before the end of what its first axis would make a trajectory. If the axes are steps "
                    "and environments, save them the other way round, or each environment as a file."
                )


def _is_by_trajectory(obs: np.ndarray, actions: np.ndarray, rewards: np.ndarray) -> bool:
    """Whether all have two axes, trajectories and steps."""
    if rewards.ndim != 2 or rewards.shape[1] < 2 or actions.shape[:2] != rewards.shape:
        return False
    return obs.ndim > 1 and len(obs) == len(rewards) and obs.shape[1] - rewards.shape[1] in (0, 1)


def _starts(name: str, array: np.ndarray, steps: int) -> np.ndarray | None:
    """(E,) the first rows of the trajectories, as an array of such a name has them."""
    if array.ndim != 1 or array.dtype.kind not in "iu" or not {name} & {*_STARTS, *_ENDS, *_LENGTHS}:
        return None
    ends = np.cumsum(array) if name in _LENGTHS else np.append(array, steps) if name in _STARTS else array
    is_whole = len(ends) and ends[-1] == steps and (np.diff(ends, prepend=0) > 0).all()
    return np.append(0, ends[:-1]).astype(np.int64) if is_whole else None


def _arrays(stream: Any, chosen: tuple[str, ...] | None, expansion: Expansion) -> dict[str, np.ndarray]:
    uri, names = expansion.uri, list[str]()
    try:
        with zipfile.ZipFile(stream) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            names = [*members]
            if missing := [name for name in chosen or () if name not in members]:
                raise SchemaError(f"{uri} has no array {', '.join(missing)}; it has {', '.join(members)}.")
            wanted = {name: member for name, member in members.items() if chosen is None or name in chosen}
            expansion.add(sum(member.file_size for member in wanted.values()))  # no more is ever unpacked
            return {name: _member(archive, member) for name, member in wanted.items()}
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise UnsafeDataError(
            f"{uri} holds an array of Python objects, which is refused: reading it would run code. Save arrays of numbers or "
            f"text instead, or choose others by source.columns; there are {', '.join(names)}."
        ) from error


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Read one array.

    Raises:
        ValueError: it is not an array, or smaller than its header says.
    """
    with archive.open(member) as file:  # so that no memory is allocated for a false header
        is_short = np.lib.format.read_magic(file) == (1, 0)
        read_header = np.lib.format.read_array_header_1_0 if is_short else np.lib.format.read_array_header_2_0
        try:
            shape, _, dtype = read_header(file)
        except Exception as error:  # NumPy parses it as Python's literals, and says all that can go wrong with these
            raise ValueError(f"the header of {member.filename} is none of an array: {first_line(error)}") from error
        if not dtype.hasobject and math.prod(shape) * max(1, dtype.itemsize) > member.file_size:
            raise ValueError(f"{member.filename} claims {dtype} of shape {shape} in {member.file_size:,} bytes")
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)
