"""Read RLlib's old SampleBatch JSON, a batch of steps a line (`rllib/offline/json_writer.py` of Ray 0.5 to 2.x).

A line is `{"type": "SampleBatch", "obs": …, …}`, or `{"type": "MultiAgentBatch", "policy_batches": {module: {"obs": …}}}`. A
column is a list with an item a step; or base64(lz4(pickle)) of all of it, or of each item; or, for composite spaces, a
dict or list of such columns. A line may hold several episodes, an episode several lines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.arrow import to_arrow
from offline_core.data.episodes.episode_codec import pack
from offline_core.data.episodes.nested import Nested
from offline_core.data.formats.packed import PACKED, unpack_column, unpack_infos, unpack_values
from offline_core.data.formats.sources.expansion import Expansion
from offline_core.data.formats.sources.first_rows import first_lines
from offline_core.data.formats.sources.readers import FileReader, reader
from offline_core.data.formats.sources.step_reader import Unreadable, with_note
from offline_core.data.formats.sources.text_files import JSON_SUFFIXES
from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import CorruptFileError, DataError, OfflineError, SchemaError, within

DEFAULT_MODULE = "default_policy"
"""RLlib's name of the only module of a SampleBatch."""
MAX_BATCH_BYTES = 64 * 2**20
"""Lines are joined until their text and their arrays reach this."""

_BATCH = re.compile(rb'\s*\{\s*"type"\s*:\s*"(SampleBatch|MultiAgentBatch)"')
_HEAD_BYTES = 200

_DONES, _AGENT, _UNROLL = "dones", "agent_index", "unroll_id"
_ONE_A_STEP = (columns.REWARDS, columns.TERMINATEDS, columns.EPS_ID, columns.T)
"""Columns with one number or text a step, which give the number of steps."""
_EPISODE_A_LINE = (
    "Lines say neither which episode they are of nor where one ends, so each line is an episode, as RLlib's documents say."
)

MAX_LINE_BYTES = 64 * 2**20
"""A line is parsed as a whole, which takes about ten times its size."""

_NAN = "null"
"""RLlib writes a float32 NaN in a list like this."""

SEQ_LENS = "seq_lens"
_IN, _OUT = "state_in", "state_out"


def _is_sample_batch(file: Location) -> bool:
    """Whether the first line is a batch."""
    with storage_errors("read", file.uri), file.filesystem.open_input_stream(file.path) as stream:
        return _BATCH.match(stream.read(_HEAD_BYTES)) is not None


@reader("sample_batch", suffixes=(*JSON_SUFFIXES, ".zip"), arguments="module_id", content=_is_sample_batch)
@dataclass(frozen=True)
class SampleBatchFile(FileReader):
    """One file of lines, plain or compressed (`.gz`, `.bz2`, `.zst`), under RLlib's column names.

    Lines without ids and ends are an episode each. `dones` become `terminateds` unless the batch has both; ids are text;
    infos are msgpack bytes, absent if all are empty. `unroll_id` and `agent_index`, which say how RLlib sampled, are left
    out. In a MultiAgentBatch several agents may share a module, so each agent has an episode `<eps_id>/<agent_index>`.
    Numbers in lists are float64, int64 or bool; packed ones keep their dtype. With `seq_lens`, padding is left out and each
    step has its state. The argument `module_id` names the module to read; otherwise it is the only one. Columns that are not
    chosen are not unpacked.
    """

    pushes: ClassVar[tuple[str, ...]] = ("columns",)

    @property
    def module_id(self) -> str | None:
        return self.arguments.get("module_id")

    @contextlib.contextmanager
    def cut(self) -> Iterator[tuple[Self, bool]]:
        with first_lines(self.location, None) as (file, is_cut):
            yield dataclasses.replace(self, location=file), is_cut

    def read(self) -> Iterator[pa.Table | Unreadable]:
        """Read several lines at a time; see `FileReader`.

        A line is unreadable if it is not JSON (such as the last line of a killed recorder) or not a batch. So is a line with a
        column that cannot be unpacked, lacks one value of one shape a step, or differs from earlier lines. Messages name
        the line.

        Raises:
            SchemaError: there are several modules, and none was chosen.
        """
        pending: list[_Steps] = []
        size = 0
        try:
            for line in self._lines():
                if isinstance(line, _Steps):
                    pending.append(line)
                    size += line.size
                if isinstance(line, Unreadable) or size >= MAX_BATCH_BYTES:
                    yield from _tables(pending, self.uri)
                    pending, size = [], 0
                if isinstance(line, Unreadable):
                    yield line
        except (OfflineError, OSError):
            yield from _tables(pending, self.uri)
            raise
        yield from _tables(pending, self.uri)

    def _lines(self) -> Iterator[_Steps | Unreadable]:
        """Yield the steps of each line."""
        layout: dict[str, str] | None = None
        modules: set[str] = set()
        for where, text in numbered_lines(self.location, self.max_expansion):
            steps: _Steps | None = None
            try:
                record = parsed(text)
                batches = _modules(record)
                modules |= batches.keys()
                chosen = self._chosen(batches.get(self.module_id or next(iter(batches), "")))
                of_several = "policy_batches" in record
                steps = None if chosen is None else _steps(chosen, self.uri, where, len(text), by_agent=of_several)
                if steps is not None:
                    layout = layout or steps.layout
                    _check_layout(steps.layout, layout)
            except DataError as error:
                yield Unreadable(self.uri, None, len(steps or ()), error.within(where))
                continue
            if self.module_id is None and len(modules) > 1:
                raise SchemaError(
                    f"{self.uri}: {where}: There are steps of the modules {_listed(modules)}; choose by module_id."
                )
            if steps is not None:
                yield steps
        if modules and self.module_id is not None and self.module_id not in modules:
            raise SchemaError(f"{self.uri}: There is no module {self.module_id!r}; there are {_listed(modules)}.")

    def _chosen(self, batch: dict[str, Any] | None) -> dict[str, Any] | None:
        if batch is None or self.own_columns is None:
            return batch
        if missing := [name for name in self.own_columns if name not in batch]:
            raise SchemaError(f"The batch has no columns {', '.join(missing)}, which were chosen; it has {', '.join(batch)}.")
        return {name: value for name, value in batch.items() if name in self.own_columns or name == SEQ_LENS}


def _lacks_episodes(names: Collection[str]) -> bool:
    """Whether no column says which episode steps are of, or where one ends."""
    return not {columns.EPS_ID, columns.TERMINATEDS, columns.TRUNCATEDS} & {*names}


def _id_of_line(uri: str, where: str) -> str:
    return hashlib.blake2b(f"{uri}:{where}".encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps of one line."""

    where: str
    """Position of the line."""
    columns: dict[str, Nested]
    """Arrays of one common length, the number of steps."""
    infos: list[dict[str, Any]]
    """One dict of infos a step, or an empty list."""
    text_bytes: int
    is_episode: bool
    """The line does not say where episodes begin, so it is taken for one episode."""

    def __len__(self) -> int:
        return len(nested.leaves(self.columns)[0])

    @property
    def size(self) -> int:
        """Bytes of its text and its arrays."""
        return self.text_bytes + sum(array.nbytes for array in nested.leaves(self.columns))

    @property
    def layout(self) -> dict[str, str]:
        """The columns, and the shape and kind of a step in each; the same in all lines."""
        leaves = [leaf for name, tree in self.columns.items() for leaf in nested.flatten(tree, name).items()]
        return {name: f"{'text' if a.dtype.kind == 'U' else 'numbers'} of shape {a.shape[1:]}" for name, a in leaves}


def _modules(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The columns of each module."""
    match record.get("type"):
        case "SampleBatch":
            return {DEFAULT_MODULE: {name: value for name, value in record.items() if name != "type"}}
        case "MultiAgentBatch":
            batches = record.get("policy_batches")
            if not isinstance(batches, dict) or not all(isinstance(batch, dict) for batch in batches.values()):
                raise SchemaError("A MultiAgentBatch needs 'policy_batches', the columns of each module by its name.")
            return batches
        case None:
            raise SchemaError("There is no 'type', so this is not RLlib's SampleBatch; read it as format ndjson.")
        case other:
            raise SchemaError(f"The type {other!r} is neither 'SampleBatch' nor 'MultiAgentBatch'.")


def _steps(batch: dict[str, Any], uri: str, where: str, text_bytes: int, *, by_agent: bool) -> _Steps | None:
    """The columns as arrays; None if there are no steps."""
    raw = {name: value for name, value in batch.items() if name not in (columns.INFOS, _AGENT, _UNROLL)}
    if not raw:
        raise SchemaError("The batch has no columns.")
    if columns.TERMINATEDS not in raw:
        raw = {columns.TERMINATEDS if name == _DONES else name: value for name, value in raw.items()}
    if by_agent and _AGENT in batch:
        raw[_AGENT] = batch[_AGENT]
    count = next((len(raw[name]) for name in _ONE_A_STEP if isinstance(raw.get(name), list)), None)
    arrays = {name: batch_column(value, name, count) for name, value in raw.items()}
    infos = batch_infos(batch.get(columns.INFOS, []))
    if SEQ_LENS in arrays:
        arrays, infos = _by_step(arrays, infos)
    lengths = {name: len(array) for key, tree in arrays.items() for name, array in nested.flatten(tree, key).items()}
    lengths |= {columns.INFOS: len(infos)} if infos else {}
    name = next((name for name in _ONE_A_STEP if name in lengths), next(iter(lengths)))
    if other := next((other for other in lengths if lengths[other] != lengths[name]), None):
        raise SchemaError(
            f"Column {other!r} has {lengths[other]} values and column {name!r} {lengths[name]}; all need one a step. "
            "Take it out of the file if it is not about steps."
        )
    if lengths[name] == 0:
        return None
    agents = batch_ids(arrays.pop(_AGENT), _AGENT) if _AGENT in arrays else None
    if is_episode := _lacks_episodes(arrays):
        arrays[columns.EPS_ID] = np.full(lengths[name], _id_of_line(uri, where))
    if columns.EPS_ID in arrays:
        ids = batch_ids(arrays[columns.EPS_ID], columns.EPS_ID)
        arrays[columns.EPS_ID] = ids if agents is None else np.strings.add(np.strings.add(ids, "/"), agents)
    return _Steps(where, arrays, infos if any(infos) else [], text_bytes, is_episode)


def _by_step(arrays: dict[str, Nested], infos: list[dict[str, Any]]) -> tuple[dict[str, Nested], list[dict[str, Any]]]:
    """The columns of sequences without padding, with one state a step."""
    lengths = arrays.pop(SEQ_LENS)
    sizes = {name: nested.length(tree, name) for name, tree in arrays.items()}
    count = next((sizes[name] for name in (*_ONE_A_STEP, columns.OBS, columns.ACTIONS) if name in sizes), 0)
    rows = rows_of_sequences(lengths, count)
    arrays = {
        name: nested.map_leaves(lambda leaf: leaf[rows], tree) if sizes[name] == count else tree
        for name, tree in arrays.items()
    }
    return states_by_step(arrays, np.asarray(lengths)), [infos[row] for row in rows] if len(infos) == count else infos


def _check_layout(layout: dict[str, str], expected: dict[str, str]) -> None:
    if layout == expected:
        return
    name = min(name for name in layout.keys() | expected if layout.get(name) != expected.get(name))
    raise SchemaError(
        f"Column {name!r} holds {layout.get(name, 'nothing')}, and {expected.get(name, 'nothing')} in earlier lines. "
        "Lines of one file need the same columns; put the others into another file."
    )


def _tables(lines: list[_Steps], uri: str) -> Iterator[pa.Table | Unreadable]:
    """The lines as one table, or one by one to find the line that fails."""
    if not lines:
        return
    try:
        table = _table(lines)
        yield with_note(table, _EPISODE_A_LINE) if any(line.is_episode for line in lines) else table
    except DataError as error:
        if len(lines) == 1:
            yield Unreadable(uri, None, len(lines[0]), error.within(lines[0].where))
        else:
            for line in lines:
                yield from _tables([line], uri)


def _table(lines: list[_Steps]) -> pa.Table:
    arrays: dict[str, pa.Array] = {}
    try:
        for name in lines[0].columns:
            trees = [line.columns[name] for line in lines]
            arrays[name] = to_arrow(nested.map_leaves(functools.partial(_joined, name), *trees), name)
        if any(line.infos for line in lines):
            name = columns.INFOS
            infos = itertools.chain.from_iterable(line.infos or [{}] * len(line) for line in lines)
            arrays[name] = pa.array([pack(info, where=name) for info in infos], pa.binary())
    except UnicodeError as error:  # half a surrogate pair, which JSON can spell
        raise CorruptFileError(f"Column {name!r} has text that is not Unicode: {error}.") from error
    fields = [pa.field(name, array.type, nullable=False) for name, array in arrays.items()]
    return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))


def _joined(name: str, *parts: np.ndarray) -> np.ndarray:
    """One array; whole numbers stay so: numpy would make int64 and uint64, which only large numbers are, float64."""
    joined = np.concatenate(parts)
    if joined.dtype.kind != "f" or any(part.dtype.kind == "f" for part in parts):
        return joined
    if any((part < 0).any() for part in parts):
        raise SchemaError(f"Column {name!r} has whole numbers below zero and above 2^63, which have no common type.")
    return np.concatenate([part.astype(np.uint64) for part in parts])


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def numbered_lines(location: Location, max_expansion: float) -> Iterator[tuple[str, bytes]]:
    """(position, text) of every line that is not blank."""
    with storage_errors("read", location.uri):
        expansion = Expansion(location.uri, location.filesystem.get_file_info(location.path).size, max_expansion)
    with location.filesystem.open_input_stream(location.path) as stream:
        unpacked = io.BufferedReader(stream)  # decompressed by the file's name
        for number in itertools.count(1):
            line = unpacked.readline(MAX_LINE_BYTES + 1)
            expansion.add(len(line))
            if len(line) > MAX_LINE_BYTES:
                raise CorruptFileError(f"line {number} is longer than {MAX_LINE_BYTES:,} bytes; write shorter batches.")
            if not line:
                return
            if line.strip():
                yield f"line {number}", line


def parsed(text: bytes) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        cut_off = "" if text.endswith(b"\n") else " The line is incomplete, as if its recorder was killed: delete it."
        raise CorruptFileError(f"Character {error.colno} is not JSON: {error.msg}.{cut_off}") from error
    except (ValueError, RecursionError) as error:  # bytes that are not UTF-8, a number of 5,000 digits, [[[[…
        raise CorruptFileError(f"The line is not JSON: {error}.") from error
    if not isinstance(record, dict):
        raise SchemaError(f"The line is a {type(record).__name__} and not a batch of steps.")
    return record


def batch_column(value: Any, name: str, count: int | None) -> Nested:
    """Arrays of shape (N, …); `count` is N if it is known, and tells a tuple of columns from a column."""
    match value:
        case str() if value.startswith(PACKED):
            return _unpacked(value, name)
        case dict() if value:
            return {key: batch_column(child, f"{name}/{key}", count) for key, child in value.items()}
        case [str(first), *_] if first.startswith(PACKED):
            return _unpacked(value, name)
        case list():
            if value and len(value) != count and all(isinstance(part, list) and len(part) == count for part in value):
                return tuple(batch_column(part, f"{name}/{i}", count) for i, part in enumerate(value))
            return _numbers_or_text(value, name)
    raise SchemaError(f"Column {name!r} is {str(value)[:40]!r}; it must be a list with one value a step, or packed arrays.")


def _unpacked(value: str | list[Any], name: str) -> Nested:
    with within(column=name):
        tree = unpack_column(value) if isinstance(value, str) else unpack_values(value, name)
    arrays = nested.leaves(tree)
    if not arrays or any(array.ndim == 0 for array in arrays):
        raise SchemaError(f"Column {name!r} is packed as a single value and not as one value a step.")
    return tree


def _numbers_or_text(values: list[Any], name: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise SchemaError(f"Column {name!r} has steps of different shapes; all need the same.") from error
    if array.dtype.kind in "biu" or (array.dtype.kind == "f" and not (np.abs(array) >= 2.0**63).any()):
        return array
    items: Iterable[Any] = values
    for _ in range(array.ndim - 1):
        items = itertools.chain.from_iterable(items)
    items = list(items)
    if all(type(item) is int for item in items):  # so no int64 holds them all
        low, high = min(items), max(items)
        if low >= 0 and high < 2**64:
            return np.asarray(items, np.uint64).reshape(array.shape)
        raise SchemaError(
            f"Column {name!r} holds whole numbers from {low} to {high}, which no type of 64 bits holds together. "
            "Write them as text, or as floats."
        )
    if array.dtype.kind == "f":
        return array
    kinds = sorted({type(item).__name__ for item in items})
    if kinds == ["str"] and not all(item == _NAN for item in items):
        return array
    if (
        "str" in kinds
        and set(kinds) <= {"str", "int", "float"}
        and all(item == _NAN for item in items if isinstance(item, str))
    ):
        return np.asarray([np.nan if item == _NAN else item for item in items], np.float64).reshape(array.shape)
    raise SchemaError(f"Column {name!r} holds {', '.join(kinds)}; its values must be all numbers or all text.")


def batch_ids(ids: Nested, name: str) -> np.ndarray:
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iuU":
        raise SchemaError(f"Column {name!r} must be one whole number or text a step.")
    return ids.astype(np.str_)


def batch_infos(values: Any) -> list[dict[str, Any]]:
    """One dict a step; a value that is not a dict (RLlib writes other objects as text) becomes `{"info": value}`."""
    if isinstance(values, str) and values.startswith(PACKED):
        values = unpack_infos(values)
    elif isinstance(values, list):
        values = [unpack_infos(info) if isinstance(info, str) and info.startswith(PACKED) else info for info in values]
    if not isinstance(values, list):
        raise SchemaError(f"Column 'infos' is {str(values)[:40]!r}; it must be a list with one dict a step.")
    return [info if isinstance(info, dict) else {} if _is_none(info) else {"info": info} for info in values]


def _is_none(info: Any) -> bool:
    return info is None or (isinstance(info, str) and info == _NAN)


def rows_of_sequences(lengths: Nested, rows: int) -> np.ndarray:
    """(steps,) the rows that are steps; the others are RLlib's padding of sequences to one length.

    Raises:
        SchemaError: `lengths` are not whole numbers, or do not fit the number of rows.
    """
    if not isinstance(lengths, np.ndarray) or lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 0).any():
        raise SchemaError(f"Column {SEQ_LENS!r} must hold the length of each sequence, whole numbers from zero.")
    total, count = int(lengths.sum()), len(lengths)
    if total == rows:
        return np.arange(rows)
    if not count or rows % count or rows // count < lengths.max():
        raise SchemaError(
            f"Column {SEQ_LENS!r} has {total} steps in {count} sequences, but there are {rows} rows: neither these steps "
            "nor sequences padded to one length."
        )
    return np.flatnonzero(np.arange(rows // count) < lengths[:, None])


def states_by_step(arrays: dict[str, Nested], lengths: np.ndarray) -> dict[str, Nested]:
    """The columns with one `state_in_…` a step where there is one a sequence, its initial state.

    Later steps get the `state_out_…` of the previous step, or NaN if that was not recorded.

    Raises:
        SchemaError: a `state_out_…` does not have one value a step, of the shape of its `state_in_…`.
    """
    steps, lengths = int(lengths.sum()), lengths[lengths > 0]
    first = np.cumsum(lengths) - lengths

    def spread(starts: np.ndarray, after: np.ndarray | None) -> np.ndarray:
        if after is None:
            full = np.full((steps, *starts.shape[1:]), np.nan, np.result_type(starts, np.float32))
        else:
            full = np.concatenate([after[:1], after[:-1]])
        full[first] = starts
        return full

    by_step = dict(arrays)
    for name, tree in arrays.items():
        if name.startswith(_IN) and nested.length(tree, name) == len(lengths) != steps:
            after = arrays.get(out := name.replace(_IN, _OUT))
            if after is None:
                by_step[name] = nested.map_leaves(lambda leaf: spread(leaf, None), tree)
            else:
                _check_alike(out, after, name, tree, steps)
                by_step[name] = nested.map_leaves(spread, tree, after)
    return by_step


def _check_alike(out: str, after: Nested, name: str, starts: Nested, steps: int) -> None:
    expected = {path: (steps, *leaf.shape[1:]) for path, leaf in nested.flatten(starts, "").items()}
    shapes = {path: leaf.shape for path, leaf in nested.flatten(after, "").items()}
    if shapes != expected:
        raise SchemaError(
            f"Column {out!r} has arrays of shape {[*shapes.values()]}; with one {name!r} a sequence it needs one value a step, "
            f"{[*expected.values()]}."
        )
