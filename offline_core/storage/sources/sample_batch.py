"""RLlib's old SampleBatch JSON, a batch of steps a line (`rllib/offline/json_writer.py` of Ray 0.5 to 2.x).

A line is `{"type": "SampleBatch", "obs": …, …}`, or `{"type": "MultiAgentBatch", "policy_batches": {module: {"obs": …}}}`. A
column is a list with an item a step; or base64(lz4(pickle)) of all of it, or of each item; or, for composite spaces, a
dict or list of such columns. A line may hold several episodes, an episode several lines.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import posixpath
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from offline_core.episodes import columns, nested
from offline_core.episodes.arrow import to_arrow
from offline_core.episodes.codec import pack
from offline_core.episodes.nested import Nested
from offline_core.errors import CorruptFileError, DataError, OfflineError, SchemaError, within
from offline_core.storage.cloud_errors import as_os_error
from offline_core.storage.foreign import PACKED, unpack_column, unpack_values
from offline_core.storage.location import Location
from offline_core.storage.sources.expansion import MAX_EXPANSION, CountedStream, Expansion
from offline_core.storage.sources.step_reader import Unreadable
from offline_core.storage.storage_errors import storage_errors

DEFAULT_MODULE = "default_policy"
"""What RLlib calls the one module of a SampleBatch."""
MAX_BATCH_BYTES = 64 * 2**20
"""Lines are joined until their text and their arrays reach this."""

MAX_LINE_BYTES = 64 * 2**20
"""A line is parsed whole, and takes some ten times its size."""

_NAN = "null"
"""How RLlib writes a float32 NaN that stands in a list and not in an array."""
_DONES, _AGENT, _UNROLL = "dones", "agent_index", "unroll_id"
_ONE_A_STEP = (columns.REWARDS, columns.TERMINATEDS, columns.EPS_ID, columns.T)
"""What tells the number of steps: columns that hold one number or text each."""


@dataclass(frozen=True, slots=True)
class SampleBatchFile:
    """One file of lines, plain or compressed (`.gz`, `.bz2`, `.zst`), or all `.json` in a `.zip`, under RLlib's column names.

    `dones` are `terminateds` where there are no others, ids are text, infos are msgpack bytes and there only in batches
    that have one which is not empty. `unroll_id` and `agent_index`, which say how RLlib sampled, are left out; in a
    MultiAgentBatch, where several agents may share a module, each agent has an episode `<eps_id>/<agent_index>` of its own.
    Numbers in lists are float64, int64 or bool; packed ones keep their dtype.
    """

    location: Location
    module_id: str | None = None
    """Whose steps to read; None: those of the only module there is."""
    max_expansion: float = MAX_EXPANSION
    """See `Expansion`."""

    @property
    def uri(self) -> str:
        return self.location.uri

    def batches(self) -> Iterator[pa.Table | Unreadable]:
        """Several lines at a time; see `StepReader`.

        A line is unreadable if it is not JSON (the last one is not if the recorder was killed) or no batch, or if one of its
        columns is packed and broken or more than arrays, has not one value of one shape for each step, or is not as in
        earlier lines. Messages name the line.

        Raises:
            SchemaError: it is not clear which module to read.
        """
        pending: list[_Steps] = []
        size = 0
        try:
            for found in self._found():
                if isinstance(found, _Steps):
                    pending.append(found)
                    size += found.size
                if isinstance(found, Unreadable) or size >= MAX_BATCH_BYTES:
                    yield from _tables(pending, self.uri)
                    pending, size = [], 0
                if isinstance(found, Unreadable):
                    yield found
        except OfflineError:
            yield from _tables(pending, self.uri)
            raise
        yield from _tables(pending, self.uri)

    def _found(self) -> Iterator[_Steps | Unreadable]:
        """What each line holds."""
        layout: dict[str, str] | None = None
        modules: set[str] = set()
        for where, text in _lines(self.location, self.max_expansion):
            steps: _Steps | None = None
            try:
                record = _parsed(text)
                found = _modules(record)
                modules |= found.keys()
                chosen = found.get(self.module_id or next(iter(found), ""))
                steps = None if chosen is None else _steps(chosen, where, len(text), by_agent="policy_batches" in record)
                if steps is not None:
                    layout = layout or steps.layout
                    _check_layout(steps.layout, layout)
            except DataError as error:
                yield Unreadable(self.uri, None, len(steps or ()), type(error)(f"{where}: {error}"))
                continue
            if self.module_id is None and len(modules) > 1:
                raise SchemaError(
                    f"{self.uri}: {where}: There are steps of the modules {_listed(modules)}; choose by module_id."
                )
            if steps is not None:
                yield steps
        if modules and self.module_id is not None and self.module_id not in modules:
            raise SchemaError(f"{self.uri}: There is no module {self.module_id!r}; there are {_listed(modules)}.")


@dataclass(frozen=True, slots=True)
class _Steps:
    """What one line holds."""

    where: str
    """Which line."""
    columns: dict[str, Nested]
    """Arrays of one common length, the number of steps."""
    infos: list[dict[str, Any]]
    """As many, or none."""
    text_bytes: int

    def __len__(self) -> int:
        return len(nested.leaves(self.columns)[0])

    @property
    def size(self) -> int:
        """Bytes of its text and its arrays."""
        return self.text_bytes + sum(array.nbytes for array in nested.leaves(self.columns))

    @property
    def layout(self) -> dict[str, str]:
        """What has to be the same in all lines: the columns, and the shape and kind of a step in each."""
        leaves = [leaf for name, tree in self.columns.items() for leaf in nested.flatten(tree, name).items()]
        return {name: f"{'text' if a.dtype.kind == 'U' else 'numbers'} of shape {a.shape[1:]}" for name, a in leaves}


def _lines(location: Location, max_expansion: float) -> Iterator[tuple[str, bytes]]:
    """(which one it is, text) of every line that is not blank."""
    with storage_errors("read", location.uri):
        expansion = Expansion(location.uri, location.filesystem.get_file_info(location.path).size, max_expansion)
    with _unpacking_errors(location.uri):
        if posixpath.splitext(location.path)[1].lower() != ".zip":
            with location.filesystem.open_input_stream(location.path) as stream:  # which unpacks by the file's name
                yield from _numbered(_counted(stream, expansion), "")
            return
        try:
            with location.filesystem.open_input_file(location.path) as file, zipfile.ZipFile(file) as archive:
                for name in sorted(name for name in archive.namelist() if name.lower().endswith(".json")):
                    with archive.open(name) as member:
                        yield from _numbered(_counted(member, expansion), f"member {name}, ")
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, pa.ArrowException) as error:
            raise CorruptFileError(f"{location.uri} is a broken or encrypted zip file: {error}.") from error


@contextlib.contextmanager
def _unpacking_errors(uri: str) -> Iterator[None]:
    with storage_errors("read", uri):
        try:
            yield
        except OSError as error:
            if as_os_error(error) is None:  # no place says so, but what unpacks
                raise CorruptFileError(f"{uri} cannot be unpacked: {error}. Fetch it again, or leave it out.") from error
            raise


def _counted(stream: Any, expansion: Expansion) -> io.BufferedReader:
    return io.BufferedReader(CountedStream(stream, expansion))


def _numbered(stream: io.BufferedReader, place: str) -> Iterator[tuple[str, bytes]]:
    for number in itertools.count(1):
        line = stream.readline(MAX_LINE_BYTES + 1)
        if len(line) > MAX_LINE_BYTES:
            raise CorruptFileError(f"{place}line {number} is longer than {MAX_LINE_BYTES:,} bytes; write shorter batches.")
        if not line:
            return
        if line.strip():
            yield f"{place}line {number}", line


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        cut_off = "" if text.endswith(b"\n") else " The line is cut off, as if its recorder had been killed: delete it."
        raise CorruptFileError(f"Character {error.colno} is not JSON: {error.msg}.{cut_off}") from error
    except (ValueError, RecursionError) as error:  # bytes that are not UTF-8, a number of 5,000 digits, [[[[…
        raise CorruptFileError(f"The line is not JSON: {error}.") from error
    if not isinstance(record, dict):
        raise SchemaError(f"The line is a {type(record).__name__} and not a batch of steps.")
    return record


def _modules(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The columns of each module, as the line has them."""
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


def _steps(batch: dict[str, Any], where: str, text_bytes: int, *, by_agent: bool) -> _Steps | None:
    """The columns as arrays; None if there are no steps."""
    raw = {name: value for name, value in batch.items() if name not in (columns.INFOS, _AGENT, _UNROLL)}
    if not raw:
        raise SchemaError("The batch has no columns.")
    if columns.TERMINATEDS not in raw:
        raw = {columns.TERMINATEDS if name == _DONES else name: value for name, value in raw.items()}
    if by_agent and _AGENT in batch:
        raw[_AGENT] = batch[_AGENT]
    count = next((len(raw[name]) for name in _ONE_A_STEP if isinstance(raw.get(name), list)), None)
    arrays = {name: _column(value, name, count) for name, value in raw.items()}
    infos = _infos(batch.get(columns.INFOS, []))
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
    agents = _ids(arrays.pop(_AGENT), _AGENT) if _AGENT in arrays else None
    if columns.EPS_ID in arrays:
        ids = _ids(arrays[columns.EPS_ID], columns.EPS_ID)
        arrays[columns.EPS_ID] = ids if agents is None else np.strings.add(np.strings.add(ids, "/"), agents)
    return _Steps(where, arrays, infos if any(infos) else [], text_bytes)


def _column(value: Any, name: str, count: int | None) -> Nested:
    """Arrays of shape (N, …); `count` is N if it is known, and tells a tuple of columns from a column."""
    match value:
        case str() if value.startswith(PACKED):
            return _unpacked(value, name)
        case dict() if value:
            return {key: _column(child, f"{name}/{key}", count) for key, child in value.items()}
        case [str(first), *_] if first.startswith(PACKED):
            return _unpacked(value, name)
        case list():
            if value and len(value) != count and all(isinstance(part, list) and len(part) == count for part in value):
                return tuple(_column(part, f"{name}/{i}", count) for i, part in enumerate(value))
            return _numbers_or_text(value, name)
    raise SchemaError(f"Column {name!r} is {str(value)[:40]!r}; it has to be a list with one value a step, or packed arrays.")


def _unpacked(value: str | list[Any], name: str) -> Nested:
    with within(f"Column {name!r}"):
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
    if array.dtype.kind in "biuf":
        return array
    items: Iterable[Any] = values
    for _ in range(array.ndim - 1):
        items = itertools.chain.from_iterable(items)
    items = list(items)
    kinds = sorted({type(item).__name__ for item in items})
    if kinds == ["str"] and not all(item == _NAN for item in items):
        return array
    if (
        "str" in kinds
        and set(kinds) <= {"str", "int", "float"}
        and all(item == _NAN for item in items if isinstance(item, str))
    ):
        return np.asarray([np.nan if item == _NAN else item for item in items], np.float64).reshape(array.shape)
    raise SchemaError(f"Column {name!r} holds {', '.join(kinds)}; its values have to be all numbers or all text.")


def _ids(ids: Nested, name: str) -> np.ndarray:
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iuU":
        raise SchemaError(f"Column {name!r} has to be one whole number or text a step.")
    return ids.astype(np.str_)


def _infos(values: Any) -> list[dict[str, Any]]:
    """One dict a step: what is none (RLlib wrote as text what was no JSON) stands below `info` in one."""
    if not isinstance(values, list):
        raise SchemaError(f"Column 'infos' is {str(values)[:40]!r}; it has to be a list with one dict a step.")
    return [info if isinstance(info, dict) else {} if info in (None, _NAN) else {"info": info} for info in values]


def _check_layout(layout: dict[str, str], expected: dict[str, str]) -> None:
    if layout == expected:
        return
    name = min(name for name in layout.keys() | expected if layout.get(name) != expected.get(name))
    raise SchemaError(
        f"Column {name!r} holds {layout.get(name, 'nothing')}, and {expected.get(name, 'nothing')} in earlier lines. "
        "Only lines with the same columns can be read together; put the others into a file of their own."
    )


def _tables(lines: list[_Steps], uri: str) -> Iterator[pa.Table | Unreadable]:
    """The lines as one table; one by one if that cannot be, for one of them is to blame."""
    if not lines:
        return
    try:
        yield _table(lines)
    except DataError as error:
        if len(lines) == 1:
            yield Unreadable(uri, None, len(lines[0]), type(error)(f"{lines[0].where}: {error}"))
        else:
            for line in lines:
                yield from _tables([line], uri)


def _table(lines: list[_Steps]) -> pa.Table:
    arrays: dict[str, pa.Array] = {}
    try:
        for name in lines[0].columns:
            arrays[name] = to_arrow(nested.concatenate([line.columns[name] for line in lines]), name)
        if any(line.infos for line in lines):
            name = columns.INFOS
            infos = itertools.chain.from_iterable(line.infos or [{}] * len(line) for line in lines)
            arrays[name] = pa.array([pack(info, where=name) for info in infos], pa.binary())
    except UnicodeError as error:  # half a surrogate pair, which JSON can spell
        raise CorruptFileError(f"Column {name!r} has text that is not Unicode: {error}.") from error
    fields = [pa.field(name, array.type, nullable=False) for name, array in arrays.items()]
    return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(fields))


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))
