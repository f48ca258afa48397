"""RLlib's SampleBatch JSON: its own recordings against a decoder of their own, every form a column has, and what is refused."""

from __future__ import annotations

import base64
import collections
import gzip
import json
import pickle
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lz4.frame
import msgpack
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from offline_core.data.episodes import nested
from offline_core.data.episodes.arrow import read_column
from offline_core.data.formats.sources import sample_batch
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.data.formats.sources.sample_batch import SampleBatchFile
from offline_core.data.formats.sources.step_reader import Unreadable, note_of
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError, DataError, OfflineError, SchemaError, StorageError, UnsafeDataError
from tests.cases import examples
from tests.data.datasets.factories import Bomb
from tests.data.formats.sources.factories import tables_of

NAN, INFINITY = float("nan"), float("inf")


def packed(value: Any) -> str:
    """As RLlib's `pack` does, less cloudpickle, which pickles arrays as pickle does."""
    return base64.b64encode(lz4.frame.compress(pickle.dumps(value, protocol=5))).decode("ascii")


def unpacked(text: str) -> Any:
    """The trusting way."""
    return pickle.loads(lz4.frame.decompress(base64.b64decode(text)))


def jsonable(value: Any) -> Any:
    """As RLlib's encoder does for arrays, scalars and what is no JSON at all."""
    match value:
        case np.ndarray():
            return value.tolist()
        case np.floating() if np.isnan(value):
            return "null"
        case np.generic():
            return value.item()
    return str(value)


def written(folder: Path, *records: Any, name: str = "output_worker-0_0.json") -> Path:
    """The records as RLlib's JsonWriter puts them down."""
    path = folder / name
    path.write_text("".join(json.dumps(record, default=jsonable) + "\n" for record in records))
    return path


def batch(**columns: Any) -> dict[str, Any]:
    return {"type": "SampleBatch", **columns}


def multi(**policies: dict[str, Any]) -> dict[str, Any]:
    return {"type": "MultiAgentBatch", "count": 0, "policy_batches": policies}


def tables(path: Path, module_id: str | None = None) -> list[pa.Table]:
    config = SourceConfig(format="sample_batch", arguments={} if module_id is None else {"module_id": module_id})
    return [table for reader in open_source([str(path)], config) for table in tables_of(reader)]


def table_of(path: Path, module_id: str | None = None) -> pa.Table:
    return pa.concat_tables(tables(path, module_id))


def one_column(folder: Path, column: Any, steps: int) -> Any:
    """What is read where a column `x` of `steps` steps is written."""
    return read_column(table_of(written(folder, batch(x=column, rewards=[0.0] * steps))), "x")


# RLlib's own recordings.


@pytest.mark.parametrize(("name", "steps"), [("cartpole_json_plain", 17_257), ("cartpole_json_packed", 15_432)])
def test_rllibs_recordings(rllib_recordings: Path, name: str, steps: int) -> None:
    """Every value of every step, against a loop of its own over the lines."""
    expected: dict[str, list[Any]] = collections.defaultdict(list)
    got: dict[str, list[Any]] = collections.defaultdict(list)
    for path in sorted((rllib_recordings / name).glob("*.json")):
        for line in path.read_text().splitlines():
            for column, values in json.loads(line).items():
                expected[column] += list(unpacked(values).tolist() if "BCJ" in values else values)
        [table] = tables(path)
        for column in table.column_names:
            got[column] += np.asarray(read_column(table, column)).tolist()
    assert not any(expected["infos"])
    assert expected.keys() - got.keys() == {"type", "infos", "unroll_id", "agent_index"}
    assert len(set(zip(got["eps_id"], got["t"], strict=True))) == len(got["t"]) == steps
    expected["eps_id"] = [str(eps_id) for eps_id in expected["eps_id"]]
    for column, values in got.items():
        assert values == expected[column], column


# Columns.


DTYPES = st.sampled_from([np.dtype(name) for name in ("?", "u1", "i4", "i8", "f4", "f8")])


@st.composite
def lines(draw: st.DrawFn) -> list[dict[str, np.ndarray]]:
    """A few lines of the same columns, each with steps of the same shape."""
    layout = draw(st.dictionaries(st.text("abc_", min_size=1, max_size=4), st.tuples(DTYPES, hnp.array_shapes()), max_size=4))
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    return [
        {"rewards": draw(hnp.arrays(np.float64, n))}
        | {name: draw(hnp.arrays(dtype, (n, *shape))) for name, (dtype, shape) in layout.items()}
        for n in lengths
    ]


@settings(max_examples=examples(60))
@given(lines(), st.sampled_from(["plain", "whole", "rows"]), st.integers(1, 3000))
def test_what_is_written_is_read(some: list[dict[str, np.ndarray]], form: str, batch_bytes: int) -> None:
    """Numbers to the last bit, NaN and infinity too; packed ones with their dtype, others with that of JSON."""
    forms = {"plain": lambda array: array, "whole": packed, "rows": lambda array: [packed(row) for row in array]}
    records = [batch(**{name: a if name == "rewards" else forms[form](a) for name, a in line.items()}) for line in some]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_batch, "MAX_BATCH_BYTES", batch_bytes)
        table = table_of(written(Path(folder), *records))
    assert set(table.column_names) == {*some[0], "eps_id"}
    assert len(set(table["eps_id"].to_pylist())) == len(some)  # each line is an episode
    wide = {"b": np.bool_, "u": np.int64, "i": np.int64, "f": np.float64}
    for name in some[0]:
        expected = np.concatenate([line[name] for line in some])
        got = np.asarray(read_column(table, name))
        assert got.dtype == (wide[expected.dtype.kind] if form == "plain" else expected.dtype)
        np.testing.assert_array_equal(got, expected)


@settings(max_examples=examples(60))
@given(st.lists(st.none() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False), min_size=1, max_size=8))
def test_nan_as_text(values: list[float | None]) -> None:
    """A float32 NaN that is no array is the text "null", which numpy would take for the kind of all."""
    if all(isinstance(value, int) for value in values):
        values.append(None)
    with tempfile.TemporaryDirectory() as folder:
        written_values = [np.float32("nan") if value is None else value for value in values]
        got = one_column(Path(folder), written_values, len(values))
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, [NAN if value is None else value for value in values])


POSITION, CAMERA = np.arange(6, dtype=np.float32).reshape(3, 2), np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
COMPOSITES: list[Any] = [
    {"position": POSITION, "inner": {"camera": CAMERA}},
    collections.OrderedDict(position=POSITION, inner=collections.OrderedDict(camera=CAMERA)),
    (POSITION, CAMERA),
    {"parts": (POSITION, CAMERA)},
]


@pytest.mark.parametrize("value", COMPOSITES, ids=["dict", "ordered", "tuple", "mixed"])
@pytest.mark.parametrize("form", ["plain", "packed"])
def test_composite_observations(tmp_path: Path, value: Any, form: str) -> None:
    """RLlib keeps one array a leaf, whether it writes them as lists or packs them all."""
    record = batch(obs=packed(value) if form == "packed" else value, rewards=[1.0] * 3)
    got = read_column(table_of(written(tmp_path, record, record)), "obs")
    assert jsonable_tree(got) == jsonable_tree(twice(value))
    if form == "packed":
        assert {leaf.dtype for leaf in nested.leaves(got)} == {leaf.dtype for leaf in nested.leaves(value)}


def twice(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: twice(child) for key, child in tree.items()}
    return tuple(map(twice, tree)) if isinstance(tree, tuple) else np.concatenate([tree, tree])


def jsonable_tree(tree: Any) -> Any:
    return json.loads(json.dumps(tree, default=jsonable))


def test_text_stays_text(tmp_path: Path) -> None:
    texts = ["null", "1.5", "BCJ", "é"]
    assert one_column(tmp_path, texts, 4).tolist() == texts


def test_columns_keep_their_names_but_for_four(tmp_path: Path) -> None:
    columns = {
        name: [0.0, 1.0]
        for name in ("t", "obs", "actions", "rewards", "prev_actions", "weights", "advantages", "unroll_id", "agent_index")
    }
    table = table_of(written(tmp_path, batch(eps_id=[3, 3], dones=[False, True], **columns)))
    assert set(table.column_names) == {"eps_id", "terminateds", *columns} - {"unroll_id", "agent_index"}
    assert table["terminateds"].to_pylist() == [False, True]
    assert not any(field.nullable for field in table.schema)


def test_dones_stand_beside_terminateds(tmp_path: Path) -> None:
    table = table_of(written(tmp_path, batch(dones=[True], terminateds=[False], rewards=[0.0])))
    assert (table["dones"].to_pylist(), table["terminateds"].to_pylist()) == ([True], [False])


@pytest.mark.parametrize("ids", [[7, 7, 9], ["7", "7", "9"], np.array([7, 7, 9], np.uint8)])
@pytest.mark.parametrize("is_packed", [False, True])
def test_ids_are_text(tmp_path: Path, ids: Any, is_packed: bool) -> None:
    column = packed(np.asarray(ids)) if is_packed else ids
    table = table_of(written(tmp_path, batch(eps_id=column, rewards=[0.0] * 3)))
    assert table["eps_id"].to_pylist() == ["7", "7", "9"]
    assert table.schema.field("eps_id").type == pa.string()


# Infos.


def infos_of(table: pa.Table) -> list[Any]:
    return [msgpack.unpackb(cell) for cell in table["infos"].to_pylist()]


def test_infos(tmp_path: Path) -> None:
    """In lines that have none as well, when others of the batch have some."""
    records = [
        batch(rewards=[0.0, 0.0], infos=[{}, {}]),
        batch(rewards=[0.0, 0.0], infos=[{"a": {"b": [1, 2.5, None]}}, {}]),
        batch(rewards=[0.0]),
    ]
    table = table_of(written(tmp_path, *records))
    assert table.schema.field("infos").type == pa.binary()
    assert infos_of(table) == [{}, {}, {"a": {"b": [1, 2.5, None]}}, {}, {}]
    assert "infos" not in table_of(written(tmp_path, records[0], records[2])).column_names


def test_infos_that_are_no_dicts(tmp_path: Path) -> None:
    """RLlib writes what is no JSON as text, and NaN for what it never had."""
    infos = [{"robot": object}, "<Info at 0x7f>", None, np.float32("nan")]
    table = table_of(written(tmp_path, batch(rewards=[0.0] * 4, infos=infos)))
    assert infos_of(table) == [{"robot": "<class 'object'>"}, {"info": "<Info at 0x7f>"}, {}, {}]


# Lines.


def test_lines_without_episodes_are_one_for_each_agent_and_that_is_said(tmp_path: Path) -> None:
    lines = [multi(one={"obs": [1.0, 2.0, 3.0], "agent_index": [0, 1, 0]})] * 2
    [table] = tables(written(tmp_path, *lines))
    ids = table["eps_id"].to_pylist()
    assert ids[0] == ids[2] and len({*ids}) == 4 and {each[-2:] for each in ids} == {"/0", "/1"}
    assert "each line is an episode" in (note_of(table) or "")
    [table] = tables(written(tmp_path, batch(obs=[1.0], dones=[True])))
    assert "eps_id" not in table.column_names and note_of(table) is None


def test_lines_are_joined_to_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several episodes in a line, an episode over several lines, lines of nothing."""
    records = [batch(t=[i, i + 1], eps_id=[i // 3, i // 3 + 1], x=np.ones((2, 3)) * i) for i in range(7)]
    nothing = batch(t=[], eps_id=[], x=[])
    path = written(tmp_path, nothing, *records, nothing)
    path.write_text("\n\n" + path.read_text().replace("\n", "\n \n").rstrip())
    [whole] = tables(path)
    assert whole["t"].to_pylist() == [t for i in range(7) for t in (i, i + 1)]
    assert whole["eps_id"].to_pylist() == [str(e) for i in range(7) for e in (i // 3, i // 3 + 1)]
    monkeypatch.setattr(sample_batch, "MAX_BATCH_BYTES", 1)
    assert [table.num_rows for table in tables(path)] == [2] * 7
    line = len(json.dumps(records[0], default=jsonable)) + 1 + 2 * 8 * 5
    monkeypatch.setattr(sample_batch, "MAX_BATCH_BYTES", 2 * line)
    assert [table.num_rows for table in tables(path)] == [4, 4, 4, 2]
    assert pa.concat_tables(tables(path)) == whole


@pytest.mark.parametrize("numbers", [[2**63 - 1, 2**63], [2**63 - 1, -1], [-1, 2**63]])
def test_large_whole_numbers_stay_whole(tmp_path: Path, numbers: list[int]) -> None:
    """In one line or in several."""
    if min(numbers) >= 0:
        assert one_column(tmp_path, numbers, 2).tolist() == numbers
    path = written(tmp_path, *(batch(x=[number]) for number in numbers))
    assert [number for table in tables(path) for number in table["x"].to_pylist()] == numbers


@pytest.mark.parametrize("numbers", [[-1, 2**63], [0, 2**64]])
def test_whole_numbers_that_no_type_holds_together_are_refused(tmp_path: Path, numbers: list[int]) -> None:
    with pytest.raises(SchemaError, match=f"Column 'x' holds whole numbers from {numbers[0]} to {numbers[1]}"):
        one_column(tmp_path, numbers, 2)


def test_numbers_grow_from_line_to_line(tmp_path: Path) -> None:
    """JSON that other programs wrote has 1 for 1.0."""
    table = table_of(written(tmp_path, batch(rewards=[1, 2]), batch(rewards=[0.5])))
    assert table["rewards"].to_pylist() == [1.0, 2.0, 0.5]


@pytest.mark.parametrize("content", ["", "\n\n", '{"type": "SampleBatch", "rewards": []}\n'])
def test_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    assert tables(path) == []


def test_compressed_files(tmp_path: Path) -> None:
    plain = written(tmp_path, batch(rewards=[1.0, 2.0]), batch(rewards=[3.0]))
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(plain.read_bytes()))
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(plain, "b/second.json")
        archive.writestr("a-first.json", json.dumps(batch(rewards=[0.0])))
        archive.writestr("README.txt", "not JSON")
    assert table_of(tmp_path / "x.json.gz")["rewards"].to_pylist() == [1.0, 2.0, 3.0]
    assert table_of(tmp_path / "x.zip")["rewards"].to_pylist() == [0.0, 1.0, 2.0, 3.0]
    assert sorted(path.name for path in tmp_path.iterdir()) == [plain.name, "x.json.gz", "x.zip"], "nothing is extracted"


@pytest.mark.parametrize("name", ["x.json.gz", "x.zip"])
@pytest.mark.parametrize("cut", [20, 40, 10_000])
def test_compressed_files_that_are_broken(tmp_path: Path, name: str, cut: int) -> None:
    plain = written(tmp_path, batch(rewards=np.random.default_rng(0).standard_normal(2000)))
    path = tmp_path / name
    if name.endswith("zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(plain)
    else:
        path.write_bytes(gzip.compress(plain.read_bytes()))
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(CorruptFileError, match=str(path)):
        tables(path)


def test_a_zip_file_with_a_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inside.json", "{}\n")
    with pytest.raises(SchemaError, match=f"{path}/inside.json: line 1: There is no 'type'"):
        tables(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    reader = SampleBatchFile(Location.of(str(tmp_path / "x.json")))
    with pytest.raises(StorageError, match=f"Cannot read {tmp_path}/x.json: it does not exist"):
        list(reader.batches())


# Several agents, several modules.


def test_each_agent_has_its_episodes(tmp_path: Path) -> None:
    shared = {"eps_id": [5, 5, 5, 5], "agent_index": [0, 0, 1, 1], "t": [0, 1, 0, 1], "rewards": [1.0, 2.0, 3.0, 4.0]}
    packed_ids = shared | {"eps_id": packed(np.array([6] * 4)), "agent_index": packed(np.array([0, 0, 1, 1]))}
    table = table_of(written(tmp_path, multi(shared=shared), multi(shared=packed_ids)))
    assert table.column_names == ["eps_id", "t", "rewards"]
    assert table["eps_id"].to_pylist() == ["5/0", "5/0", "5/1", "5/1", "6/0", "6/0", "6/1", "6/1"]
    assert table["rewards"].to_pylist() == [1.0, 2.0, 3.0, 4.0] * 2


def test_one_module_needs_no_choice(tmp_path: Path) -> None:
    path = written(
        tmp_path, multi(), multi(a={"rewards": [1.0], "dones": [True]}), multi(a={"rewards": [2.0], "dones": [True]})
    )
    for module_id in (None, "a"):
        assert table_of(path, module_id).to_pydict() == {"rewards": [1.0, 2.0], "terminateds": [True, True]}


def test_of_several_modules_one_is_chosen(tmp_path: Path) -> None:
    """A line in which it did nothing does not have it."""
    path = written(tmp_path, multi(a={"rewards": [1.0]}), multi(b={"rewards": [2.0]}, a={"rewards": [3.0]}))
    assert table_of(path, "a")["rewards"].to_pylist() == [1.0, 3.0]
    assert table_of(path, "b")["rewards"].to_pylist() == [2.0]
    with pytest.raises(SchemaError, match=f"{path}: line 2: There are steps of the modules a, b; choose by module_id"):
        tables(path)
    with pytest.raises(SchemaError, match=f"{path}: There is no module 'c'; there are a, b"):
        tables(path, "c")


def test_the_module_of_a_sample_batch(tmp_path: Path) -> None:
    path = written(tmp_path, batch(rewards=[1.0]))
    assert table_of(path, "default_policy") == table_of(path)
    with pytest.raises(SchemaError, match="There is no module 'a'; there are default_policy"):
        tables(path, "a")


# What is refused, and how; the rest goes on.


def found_in(path: Path) -> list[Any]:
    """The rewards of each table, and (rows, reason) of what cannot be read."""
    batches = SampleBatchFile(Location.of(str(path))).batches()
    return [(b.rows, str(b)) if isinstance(b, Unreadable) else b["rewards"].to_pylist() for b in batches]


def test_a_bad_line_takes_no_other_with_it(tmp_path: Path) -> None:
    """If it is known how many steps it holds, so many are listed."""
    path = written(tmp_path, *[batch(rewards=[float(i)] * 2, x=["é"] * 2) for i in range(5)])
    lines = path.read_text().splitlines(keepends=True)
    lines[1] = lines[1].replace("}", "")
    lines[2] = lines[2].replace("x", "y")
    lines[4] = lines[4].replace("\\u00e9", "\\ud800")
    path.write_text("".join(lines))
    expected = [[0.0, 0.0], (0, "2: Char"), (2, "3: Column 'x'"), [3.0, 3.0], (2, "5: Column 'x' has text that is not Unicode")]
    for found, wanted in zip(found_in(path), expected, strict=True):
        assert found == wanted if isinstance(wanted, list) else found[0] == wanted[0]
        assert isinstance(wanted, list) or found[1].startswith(f"{path}: line {wanted[1]}")


def test_what_was_read_before_a_file_broke_is_given(tmp_path: Path) -> None:
    path = written(tmp_path, *[multi(a={"rewards": [float(i)]}) for i in range(3)], multi(b={"rewards": [0.0]}))
    batches = SampleBatchFile(Location.of(str(path))).batches()
    assert next(batches)["rewards"].to_pylist() == [0.0, 1.0, 2.0]
    with pytest.raises(SchemaError, match="choose by module_id"):
        next(batches)


def test_a_recorder_that_was_killed(tmp_path: Path) -> None:
    """The lines before are read; the error tells where the text ends."""
    path = written(tmp_path, *[batch(rewards=[float(i)]) for i in range(3)])
    text = path.read_text()
    path.write_text(text.removesuffix("]}\n"))
    end = len(text.splitlines()[-1]) - len("]}")
    with pytest.raises(
        CorruptFileError, match=rf"{path}: line 3: Character {end + 1} is not JSON: .*incomplete, as if its recorder"
    ):
        tables(path)
    path.write_text(text.replace("}\n", "\n", 1))
    with pytest.raises(CorruptFileError, match=rf"{path}: line 1: Character \d+ is not JSON: [^.]*\.$"):
        tables(path)


@settings(max_examples=examples(60))
@given(st.binary(max_size=40) | st.integers(0, 10**6).map(lambda cut: json.dumps(batch(a=[1], b="BCJNGGhA"))[:cut].encode()))
def test_any_bytes_are_read_or_named(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.json"
        path.write_bytes(content)
        try:
            tables(path)
        except DataError as error:
            assert str(error).startswith(f"{path}: line ")


def ragged(*lengths: int) -> Sequence[Any]:
    return [[0.0] * length for length in lengths]


@pytest.mark.parametrize(
    ("record", "error", "message"),
    [
        ([1], SchemaError, "is a list and not a batch"),
        ({"rewards": [1.0]}, SchemaError, "There is no 'type'"),
        ({"type": "Episode", "rewards": [1.0]}, SchemaError, "type 'Episode' is neither 'SampleBatch' nor 'MultiAgentBatch'"),
        (batch(), SchemaError, "has no columns"),
        ({"type": "MultiAgentBatch"}, SchemaError, "needs 'policy_batches'"),
        (multi(a=[1.0]), SchemaError, "needs 'policy_batches'"),
        (batch(rewards=[1.0], x=[1, 2]), SchemaError, "'x' has 2 values and column 'rewards' 1"),
        (batch(rewards=[1.0], x={"y": [1, 2]}), SchemaError, "'x/y' has 2 values and column 'rewards' 1"),
        (batch(rewards=[1.0], infos=[{}, {"a": 1}]), SchemaError, "'infos' has 2 values and column 'rewards' 1"),
        (batch(rewards=[1.0], x=packed(np.zeros((2, 3)))), SchemaError, "'x' has 2 values and column 'rewards' 1"),
        (batch(rewards=[1.0, 2.0], obs=ragged(2, 3)), SchemaError, "'obs' has steps of different shapes"),
        (batch(rewards=[1.0, 2.0], obs=[[1], 2]), SchemaError, "'obs' has steps of different shapes"),
        (batch(rewards=[1.0, None]), SchemaError, "'rewards' holds NoneType, float"),
        (batch(rewards=[1.0, 2.0], x=["a", 1]), SchemaError, "'x' holds int, str"),
        (batch(rewards=[1.0, 2.0], x=["null", True]), SchemaError, "'x' holds bool, str"),
        (batch(rewards=[1.0], x=[{"a": 1}]), SchemaError, "'x' holds dict"),
        (batch(rewards=[1.0], x=[2**70]), SchemaError, "'x' holds whole numbers"),
        (batch(rewards=[1.0], x="tensor([1.])"), SchemaError, "'x' is 'tensor.*'; it must be a list"),
        (batch(rewards=[1.0], x=3), SchemaError, "'x' is '3'; it must be a list"),
        (batch(rewards=[1.0], x={}), SchemaError, "'x' is '{}'; it must be a list"),
        (batch(rewards=[1.0], x=None), SchemaError, "'x' is 'None'; it must be a list"),
        (batch(rewards=[1.0], infos="text"), SchemaError, "'infos' is 'text'; it must be a list with one dict a step"),
        (batch(rewards=[1.0], eps_id=[1.5]), SchemaError, "'eps_id' must be one whole number or text a step"),
        (batch(rewards=[1.0], eps_id=[[1]]), SchemaError, "'eps_id' must be one whole number or text a step"),
        (multi(a={"eps_id": [1], "agent_index": [0.5]}), SchemaError, "'agent_index' must be one whole number"),
        (multi(a={"eps_id": [1], "agent_index": [0, 1]}), SchemaError, "'agent_index' has 2 values and column 'eps_id' 1"),
        (batch(rewards=[1.0], x=packed(np.float32(1))), SchemaError, "'x' is packed as a single value"),
        (batch(rewards=packed(np.float32(1))), SchemaError, "'rewards' is packed as a single value"),
        (batch(rewards=[1.0], x=packed({})), SchemaError, "'x' is packed as a single value"),
        (batch(rewards=[1.0], x=packed(np.ones(9))[:-9]), CorruptFileError, "'x': A packed value"),
        (batch(rewards=[1.0] * 2, x=[packed(np.ones(2)), "a"]), SchemaError, "'x' mixes packed arrays with other text"),
        (batch(rewards=[1.0] * 2, x=[packed(np.ones(2)), packed(np.ones(3))]), DataError, "'x': .* differ in shape"),
    ],
)
def test_lines_that_cannot_be_read_are_named(tmp_path: Path, record: Any, error: type[DataError], message: str) -> None:
    path = written(tmp_path, record)
    path.write_text("\n" + path.read_text())
    with pytest.raises(error, match=rf"{path}: line 2: .*{message}"):
        tables(path)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"x": [1]}, {"x": [[1.0, 2.0]]}, r"'x' holds numbers of shape \(2,\), and numbers of shape \(\) in earlier lines"),
        ({"x": [1]}, {"x": ["a"]}, r"'x' holds text of shape \(\), and numbers of shape \(\)"),
        ({"x": [1]}, {}, r"'x' holds nothing, and numbers of shape \(\)"),
        ({}, {"x": [1]}, r"'x' holds numbers of shape \(\), and nothing"),
        ({"x": [1]}, {"x": {"a": [1]}}, r"'x' holds nothing, and numbers of shape \(\)"),
    ],
)
def test_all_lines_have_the_same_columns(tmp_path: Path, first: Any, second: Any, message: str) -> None:
    path = written(tmp_path, batch(rewards=[1.0], **first), batch(rewards=[1.0], **second))
    with pytest.raises(SchemaError, match=f"{path}: line 2: Column {message}"):
        tables(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"type": "SampleBatch", "x": ' + "[" * 100_000, "is not JSON"),
        ('{"type": "SampleBatch", "x": [' + "9" * 5000 + "]}", "is not JSON"),
        ('{"type": "SampleBatch", "x": ' + "[" * 70 + "]" * 70 + "}", "'x' has steps of different shapes"),
        ('{"type": "SampleBatch", "x": ["\\ud800"]}', "'x' has text that is not Unicode"),
        ('{"type": "SampleBatch", "x": [1], "infos": [{"a": 99999999999999999999999}]}', "infos holds a value"),
        ('{"type": "SampleBatch", "x": [[]]}', r"x have float64 values of shape \(0,\) a step, which cannot be a column"),
    ],
    ids=["deep", "digits", "axes", "surrogate", "integer", "empty"],
)
def test_json_that_is_no_data(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=f"{path}.*{message}"):
        tables(path)


WRAPPED: dict[str, Callable[[Any], Any]] = {
    "bomb": lambda bomb: bomb,
    "dict": lambda bomb: {"a": bomb},
    "array": lambda bomb: np.array([bomb, 1], object),
}


@pytest.mark.parametrize(
    ("form", "wrap"),
    [("whole", "bomb"), ("whole", "dict"), ("whole", "array"), ("row", "array"), ("nested", "dict"), ("module", "bomb")],
)
def test_pickles_that_run_code(tmp_path: Path, form: str, wrap: str) -> None:
    marker = tmp_path / "exploded"
    bomb = packed(WRAPPED[wrap](Bomb(marker)))
    record = {
        "whole": batch(rewards=[1.0], obs=bomb),
        "row": batch(rewards=[1.0], obs=[bomb]),
        "nested": batch(rewards=[1.0], obs={"deep": {"er": bomb}}),
        "module": multi(a={"rewards": [1.0], "obs": bomb}),
    }[form]
    path = written(tmp_path, record)
    with pytest.raises(UnsafeDataError, match=rf"{path}: line 1: Column 'obs.*wants to call \w+.mkdir"):
        tables(path)
    assert not marker.exists()
    unpacked(bomb)
    assert marker.exists(), "or else this test would show nothing"


# Recurrent batches.

SEQUENCES = {"obs": [[1.0], [2.0], [3.0], [4.0], [5.0]], "actions": [0, 1, 0, 1, 0], "rewards": [1.0] * 5}


def one_table(tmp_path: Path, **columns: Any) -> pa.Table:
    return table_of(written(tmp_path, batch(**columns)))


def why_bad(tmp_path: Path, **columns: Any) -> OfflineError:
    """Why the only line cannot be read."""
    [bad] = SampleBatchFile(Location.of(str(written(tmp_path, batch(**columns))))).batches()
    assert isinstance(bad, Unreadable)
    return bad.error


def test_states_stand_before_the_first_step_of_their_sequence(tmp_path: Path) -> None:
    table = one_table(tmp_path, **SEQUENCES, seq_lens=[3, 2], state_in_0=[[0.0, 0.5], [1.0, 1.5]])
    assert table.num_rows == 5 and "seq_lens" not in table.column_names
    found = read_column(table, "state_in_0")
    assert found[[0, 3]].tolist() == [[0.0, 0.5], [1.0, 1.5]] and np.isnan(found[[1, 2, 4]]).all()


def test_states_go_on_where_those_that_come_out_are_recorded(tmp_path: Path) -> None:
    out = [[float(i)] for i in range(5)]
    table = one_table(tmp_path, **SEQUENCES, seq_lens=packed(np.array([3, 2])), state_in_0=[[9.0], [8.0]], state_out_0=out)
    assert read_column(table, "state_in_0").tolist() == [[9.0], [0.0], [1.0], [8.0], [3.0]]


@pytest.mark.parametrize("out", [[[1.0], [2.0]], [[1.0, 2.0]] * 5, [1.0] * 5, {"h": [[1.0]] * 5}], ids=str)
def test_states_that_come_out_and_do_not_fit_those_that_go_in(tmp_path: Path, out: Any) -> None:
    error = why_bad(tmp_path, **SEQUENCES, seq_lens=[3, 2], state_in_0=[[9.0], [8.0]], state_out_0=out)
    assert "line 1: Column 'state_out_0' has arrays of shape" in str(error)


def test_rows_that_fill_up_sequences_are_left_out(tmp_path: Path) -> None:
    filled = {name: values[:3] + values[3:] + values[:1] for name, values in SEQUENCES.items()}
    infos = [{"n": i} for i in range(6)]
    table = one_table(tmp_path, **filled, seq_lens=[2, 3], state_in_0=packed(np.ones((2, 1), np.float32)), infos=infos)
    assert read_column(table, "obs").tolist() == [[1.0], [2.0], [4.0], [5.0], [1.0]]
    assert [msgpack.unpackb(cell)["n"] for cell in table["infos"].to_pylist()] == [0, 1, 3, 4, 5]
    assert read_column(table, "state_in_0")[[0, 2]].tolist() == [[1.0], [1.0]]


@pytest.mark.parametrize("lengths", [[3, 1], [-1, 6], [0.5, 4.5], [4, 4]])
def test_lengths_that_do_not_fit(tmp_path: Path, lengths: list[Any]) -> None:
    assert "line 1: Column 'seq_lens'" in str(why_bad(tmp_path, **SEQUENCES, seq_lens=lengths))


# Packed infos, and columns chosen.


@pytest.mark.parametrize("form", ["list", "array of objects", "one by one"])
def test_packed_infos(tmp_path: Path, form: str) -> None:
    infos: list[Any] = [{"n": i, "v": np.arange(2), "s": {"deep": [None, True, "x"]}} for i in range(5)]
    column: Any = packed(infos) if form == "list" else packed(np.array(infos, object))
    column = [packed(info) for info in infos] if form == "one by one" else column
    cells = [msgpack.unpackb(cell) for cell in one_table(tmp_path, **SEQUENCES, infos=column)["infos"].to_pylist()]
    assert [cell["n"] for cell in cells] == [0, 1, 2, 3, 4] and cells[4]["s"] == {"deep": [None, True, "x"]}


def test_packed_infos_that_are_arrays(tmp_path: Path) -> None:
    column = packed([np.arange(2), None, {}, "null", {"n": 1}])
    cells = [msgpack.unpackb(cell) for cell in one_table(tmp_path, **SEQUENCES, infos=column)["infos"].to_pylist()]
    assert cells[0].keys() == {"info"} and cells[1:] == [{}, {}, {}, {"n": 1}]


def test_packed_infos_run_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    error = why_bad(tmp_path, **SEQUENCES, infos=packed([{"x": Bomb(marker)}] * 5))
    assert isinstance(error, UnsafeDataError) and not marker.exists()


def test_packed_infos_that_unfold_for_ever(tmp_path: Path) -> None:
    tree: Any = {"leaf": 1}
    for _ in range(30):
        tree = {"a": tree, "b": tree}
    assert "far more parts than it has bytes" in str(why_bad(tmp_path, **SEQUENCES, infos=packed([tree] * 5)))


def test_columns_are_chosen_and_the_others_not_unpacked(tmp_path: Path) -> None:
    place = written(tmp_path, batch(**SEQUENCES, broken=packed(np.ones(5))[:40], dones=[False] * 4 + [True]))
    chosen = SampleBatchFile(Location.of(str(place)), columns=("obs", "actions", "rewards", "dones"))
    [table] = tables_of(chosen)
    assert sorted(table.column_names) == ["actions", "obs", "rewards", "terminateds"]
    [bad] = SampleBatchFile(Location.of(str(place)), columns=("obs", "prob")).batches()
    assert isinstance(bad, Unreadable) and "The batch has no columns prob, which were chosen" in str(bad.error)
