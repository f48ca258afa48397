"""Scanned files: only what is needed is read, rows keep their numbers, and what cannot be read is named."""

from __future__ import annotations

import datetime
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offline_core.data.formats.sources import scans
from offline_core.data.formats.sources.first_rows import FirstRows
from offline_core.data.formats.sources.readers import FORMATS as READERS
from offline_core.data.formats.sources.readers import SOURCE_ROW
from offline_core.data.formats.sources.step_reader import Unreadable
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, CorruptFileError, OfflineError, SchemaError, StorageError
from tests.cases import examples
from tests.data.datasets.factories import cut_in_half, garble
from tests.data.formats.sources.factories import imported, tables_of, write_steps

FORMATS = {"parquet": "x.parquet", "csv": "x.csv", "ndjson": "x.ndjson", "ipc": "x.arrow"}


def scanned(path: Path, format: str, **options: Any) -> pa.Table:
    """All batches of a file, as one table."""
    batches = tables_of(READERS[format].reader(Location.of(str(path)), **options))
    return pa.concat_tables(batches) if batches else pa.table({SOURCE_ROW: pa.array([], pa.uint32())})


def numbers(count: int) -> pa.Table:
    return pa.table({"t": np.arange(count), "x": np.arange(count) / 4, "word": [f"w{i % 3}" for i in range(count)]})


@pytest.mark.parametrize("format", FORMATS)
def test_rows_in_their_order_with_their_numbers(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "BATCH_BYTES", 1000)
    path = tmp_path / FORMATS[format]
    write_steps(path, numbers(1000))
    assert len(list(READERS[format].reader(Location.of(str(path))).batches())) > 10
    table = scanned(path, format)
    assert table.column_names == [SOURCE_ROW, "t", "x", "word"]
    assert table[SOURCE_ROW].to_pylist() == table["t"].to_pylist() == list(range(1000))
    assert table["x"].to_pylist() == [i / 4 for i in range(1000)]


@pytest.mark.parametrize("format", FORMATS)
def test_chosen_columns_of_chosen_rows(tmp_path: Path, format: str) -> None:
    path = tmp_path / FORMATS[format]
    write_steps(path, numbers(100))
    table = scanned(path, format, columns=("x",), where="t % 10 = 3 AND word <> 'w0'")
    rows = [i for i in range(100) if i % 10 == 3 and i % 3]
    assert table.to_pydict() == {SOURCE_ROW: rows, "x": [i / 4 for i in rows]}
    assert scanned(path, format, where="t > 1000").num_rows == 0


# What is not needed is not read: there may as well be garbage.


def chunk(path: Path, row_group: int, column: int) -> tuple[int, int]:
    """Where the bytes of a column chunk lie."""
    found = pq.read_metadata(path).row_group(row_group).column(column)
    start = found.dictionary_page_offset or found.data_page_offset
    return start, start + found.total_compressed_size


def test_other_columns_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_steps(path, numbers(100))
    garble(path, *chunk(path, 0, 1))
    assert scanned(path, "parquet", columns=("t", "word"))["t"].to_pylist() == list(range(100))
    with pytest.raises(CorruptFileError, match=r"x\.parquet cannot be read as parquet"):
        scanned(path, "parquet")


def test_row_groups_without_a_row_that_is_wanted_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write_steps(path, numbers(5000), row_group_size=1000)
    for row_group in (1, 2, 4):
        for column in range(3):
            garble(path, *chunk(path, row_group, column))
    table = scanned(path, "parquet", where="t >= 3000 AND t < 4000")
    assert table["t"].to_pylist() == table[SOURCE_ROW].to_pylist() == list(range(3000, 4000))
    with pytest.raises(CorruptFileError):
        scanned(path, "parquet", where="t >= 2999 AND t < 4000")


# Types.


def test_all_rows_say_what_a_column_is(tmp_path: Path) -> None:
    """Twelve thousand rewards of 1, then one of 0.5: neither an error nor a loss."""
    (tmp_path / "x.csv").write_text("r\n" + "1\n" * 12_000 + "0.5\n")
    (tmp_path / "x.ndjson").write_text('{"r": 1}\n' * 12_000 + '{"r": 0.5, "late": 7}\n')
    assert scanned(tmp_path / "x.csv", "csv")["r"].to_pylist() == [1.0] * 12_000 + [0.5]
    table = scanned(tmp_path / "x.ndjson", "ndjson")
    assert (table["r"][12_000].as_py(), table["late"][12_000].as_py()) == (0.5, 7)


def test_arguments_for_polars(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("# a remark\nx;y\n1;2\n")
    arguments: dict[str, Any] = {"separator": ";", "comment_prefix": "#"}
    assert scanned(tmp_path / "x.csv", "csv", arguments=arguments).to_pylist() == [{SOURCE_ROW: 0, "x": 1, "y": 2}]
    arguments |= {"new_columns": ["p", "q"], "try_parse_dates": True}
    (tmp_path / "x.csv").write_text("x;y\n1;2024-05-06\n")
    assert scanned(tmp_path / "x.csv", "csv", arguments=arguments)["q"].to_pylist() == [datetime.date(2024, 5, 6)]


@pytest.mark.parametrize("format", FORMATS)
def test_any_name(tmp_path: Path, format: str) -> None:
    """Polars would take some of them for patterns, or for partitions."""
    suffix = Path(FORMATS[format]).suffix
    write_steps(tmp_path / "yyyz" / f"yyyz{suffix}", {"x": [3]})
    for name in ("a b", "ü%20x", "run[1]", "y*z", "c:d", "k=3"):
        path = tmp_path / name / f"{name}{suffix}"
        write_steps(path, {"x": [1, 2]})
        assert scanned(path, format).to_pydict() == {SOURCE_ROW: [0, 1], "x": [1, 2]}, name


# What cannot be read.


@pytest.mark.parametrize("format", FORMATS)
def test_missing_columns(tmp_path: Path, format: str) -> None:
    path = tmp_path / FORMATS[format]
    write_steps(path, numbers(3))
    with pytest.raises(SchemaError, match=rf"{path} has no column a, b; it has t, x, word"):
        scanned(path, format, columns=("b", "t", "a"))


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("t >", "condition 't >' cannot be understood"),
        ("t + 1", "'t \\+ 1' gives Int64 and not true or false"),
        ("nothing = 1", r"cannot be used on .*x\.csv: .*nothing"),
        ("x > 'a'", r"\"x > 'a'\" cannot be used on .*x\.csv: cannot compare string with numeric"),
        ("word + x > 1", r"cannot be used on .*x\.csv: arithmetic on dtypes"),
    ],
)
def test_conditions_that_are_none(tmp_path: Path, where: str, message: str) -> None:
    write_steps(tmp_path / "x.csv", numbers(3))
    with pytest.raises(ConfigError, match=message):
        scanned(tmp_path / "x.csv", "csv", where=where)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sepparator": ";"}, "sepparator"),
        ({"separator": "ab"}, "single byte"),
        ({"skip_rows": -1}, "negative"),
        ({"null_values": 3}, "null_values"),
    ],
)
def test_arguments_that_polars_does_not_take(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    write_steps(tmp_path / "x.csv", numbers(3))
    with pytest.raises(ConfigError, match=rf"polars\.scan_csv does not take these arguments: .*{message}"):
        scanned(tmp_path / "x.csv", "csv", arguments=arguments)


@pytest.mark.parametrize(
    ("name", "text", "row", "problem"),
    [
        ("x.csv", "a,b\n1,2\n1,2,3\n", 1, "line 3 has 3 values, the header 2"),
        ("x.csv", 'a,b\n"x\ny",2\n1,2,3\n', 1, "line 4 has 3 values, the header 2"),
        ("x.csv", '\n\na,"b,\nc"\n\n1,"2,3"\n1,2,3\n', 2, "line 7 has 3 values, the header 2"),
        ("x.csv", "a,b\n1,2\nä,2\n".encode("latin1"), 1, "line 3 is not UTF-8"),
        ("x.csv", 'a,b\n3,"4\n1,2\n5,6\n', 0, "line 2 begins a quoted value that does not end"),
        ("x.csv", 'a,b\n1,2\n3,"4', 1, "line 3 begins a quoted value that does not end"),
        ("x.ndjson", '{"a": 1}\n\n{"a":\n', 1, "line 3 is not JSON: Expecting value"),
        ("x.ndjson", '{"a": 1.0}\n{"a": NaN}\n', 1, "line 2 is not JSON: JSON has no NaN"),
        ("x.ndjson", '{"a": 1.0}\n[2]\n', 1, "line 2 is a list; each line must be one JSON object"),
    ],
)
def test_lines_that_are_no_rows(tmp_path: Path, name: str, text: str | bytes, row: int, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CorruptFileError, match=rf"{path}, row {row}: {problem}"):
        scanned(path, path.suffix[1:])


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("x.csv", "\n\n", "empty CSV"),
        ("x.csv", "a,b\n1,2,\n3,4,\n", "line 2 has 3 values, the header 2"),
        ("x.ndjson", "3\n4\n", "line 1 is a int; each line must be one JSON object"),
        ("x.ndjson", '{\n"a": 1\n}', "line 1 is not JSON"),
    ],
)
def test_files_without_a_line_that_is_a_row(tmp_path: Path, name: str, text: str | bytes, problem: str) -> None:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CorruptFileError, match=rf"{path} cannot be read as {path.suffix[1:]}: {problem}.*Repair it"):
        scanned(path, path.suffix[1:])


BAD = {"csv": {3: "7,7,7,7\n", 5: 'x,"y\n', 40_000: "7,7,7,7\n"}, "ndjson": {3: "[]\n", 5: '{"t": NaN}\n', 40_000: '{"t":\n'}}


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("format", BAD)
def test_the_other_lines_are_read(tmp_path: Path, format: str, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the numbers that they have in the file; those that Polars gave before it gave up are not given again."""
    monkeypatch.setattr(scans, "BATCH_BYTES", 100_000)
    path = tmp_path / f"x.{format}"
    write_steps(path, numbers(50_000))
    whole = path.read_text().splitlines(keepends=True)
    header = len(whole) - 50_000
    for row, line in BAD[format].items():
        whole[header + row] = line
    path = tmp_path / f"x.{format}{suffix}"
    text = "".join(whole).encode()
    path.write_bytes(gzip.compress(text) if suffix else text)
    found = list(READERS[format].reader(Location.of(str(path)), where="t < 49990").batches())
    bad = [each for each in found if isinstance(each, Unreadable)]
    assert [(each.uri, each.row, each.rows) for each in bad] == [(str(path), row, 1) for row in BAD[format]]
    good = pa.concat_tables([each for each in found if not isinstance(each, Unreadable)])
    expected = [row for row in range(49_990) if row not in BAD[format]]
    assert good[SOURCE_ROW].to_pylist() == good["t"].to_pylist() == expected
    assert good["x"].to_pylist() == [row / 4 for row in expected]


def test_bad_lines_are_listed_and_the_rest_is_imported(tmp_path: Path) -> None:
    columns = {"eps_id": [1, 1, 1], "t": [0, 1, 2], "obs": [0.5, 1.5, 2.5], "actions": [0, 1, 0], "rewards": [1.0, 2.0, 3.0]}
    for name in ("a.csv", "b.ndjson"):
        write_steps(tmp_path / name, columns)
        with (tmp_path / name).open("a") as file:
            file.write("1,2,3,4,5,6\n" if name == "a.csv" else '{"eps_id": 1, "t"')
        config = {"mapping": {}, "unreadable": "quarantine", "episodes": {"last_new_obs": "repeat"}}
        counts = imported(tmp_path, tmp_path / name, **config).counts
        assert (counts.rows, counts.steps, counts.quarantined_rows, counts.quarantined_files) == (4, 3, 1, 0)


def test_what_a_line_is_may_be_another_matter(tmp_path: Path) -> None:
    """Then it is Polars that says what is wrong, with the file as a whole."""
    (tmp_path / "x.csv").write_text("# a, b, c, d\na,b\n1,2\n1,2,3\n")
    with pytest.raises(CorruptFileError, match=r"x\.csv cannot be read as csv: found more fields"):
        scanned(tmp_path / "x.csv", "csv", arguments={"comment_prefix": "#"})


@pytest.mark.parametrize("format", FORMATS)
def test_names_that_are_taken(tmp_path: Path, format: str) -> None:
    path = tmp_path / FORMATS[format]
    write_steps(path, pa.table({"x": [1], "_source_row": [2]}))
    with pytest.raises(SchemaError, match=rf"{path} has a column _source_row, a reserved name; rename it"):
        scanned(path, format)


@pytest.mark.parametrize("format", ["parquet", "ndjson", "ipc"])
def test_files_cut_off(tmp_path: Path, format: str) -> None:
    """Of CSV, what is cut off may be a table again; a row too short has nulls."""
    path = tmp_path / FORMATS[format]
    write_steps(path, numbers(100))
    cut_in_half(path)
    problem = "row 50: line 51 is not JSON" if format == "ndjson" else f"cannot be read as {format}"
    with pytest.raises(CorruptFileError, match=rf"{path},? {problem}"):
        scanned(path, format)


def test_broken_archives(tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n' * 1000))
    assert scanned(path, "ndjson").num_rows == 1000
    cut_in_half(path)
    with pytest.raises(CorruptFileError, match=r"x\.json\.gz cannot be read as ndjson"):
        scanned(path, "ndjson")


@pytest.mark.parametrize("format", FORMATS)
def test_files_without_a_byte(tmp_path: Path, format: str) -> None:
    """No steps in a log; but Parquet and Arrow always write something."""
    path = tmp_path / FORMATS[format]
    path.write_bytes(b"")
    if format in ("csv", "ndjson"):
        assert list(READERS[format].reader(Location.of(str(path))).batches()) == []
    else:
        with pytest.raises(CorruptFileError, match=rf"{path} cannot be read as {format}"):
            scanned(path, format)


@pytest.mark.parametrize("format", FORMATS)
def test_files_without_rows(tmp_path: Path, format: str) -> None:
    write_steps(tmp_path / FORMATS[format], pa.table({"x": pa.array([], pa.int64())}))
    assert scanned(tmp_path / FORMATS[format], format).num_rows == 0


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    for name, format in (("x.parquet", "parquet"), ("x.csv", "csv")):
        with pytest.raises(StorageError, match=rf"{tmp_path}/{name}: it does not exist"):
            list(READERS[format].reader(Location.of(str(tmp_path / name))).batches())


@pytest.fixture(scope="module")
def whole_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("whole")
    for name in FORMATS.values():
        write_steps(folder / name, numbers(300))
    return {format: folder / name for format, name in FORMATS.items()}


@pytest.mark.parametrize("format", FORMATS)
@given(data=st.data())
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_never_ends_in_anything_but_our_errors(whole_files: dict[str, Path], format: str, data: st.DataObject) -> None:
    whole = whole_files[format].read_bytes()
    damaged = bytearray(whole)
    start = data.draw(st.integers(0, len(whole) - 1))
    damaged[start : start + data.draw(st.integers(0, 30))] = data.draw(st.binary(max_size=30))
    path = whole_files[format].with_name(f"damaged-{FORMATS[format]}")
    path.write_bytes(damaged)
    try:
        table = scanned(path, format)
    except OfflineError as error:
        assert str(path) in str(error)
    else:
        assert SOURCE_ROW in table.column_names


def test_other_extension_types_keep_their_metadata(tmp_path: Path) -> None:
    """What `read_foreign_column` knows Ray's tensors by."""
    metadata = {"ARROW:extension:name": "ray.data.arrow_tensor_v2", "ARROW:extension:metadata": "[2, 1]"}
    array = pa.array([[1, 2], [3, 4]], pa.list_(pa.uint8()))
    schema = pa.schema([pa.field("obs", array.type, metadata=metadata)])
    write_steps(tmp_path / "x.parquet", pa.Table.from_arrays([array], schema=schema))
    field = scanned(tmp_path / "x.parquet", "parquet").schema.field("obs")
    stored = getattr(field.type, "extension_name", None) or (field.metadata or {})[b"ARROW:extension:name"].decode()
    assert stored == "ray.data.arrow_tensor_v2"


@pytest.mark.parametrize("name", ["x.json", "x.json.gz"])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_that_is_one_list_of_objects(tmp_path: Path, name: str, indent: int | None) -> None:
    rows = [{"t": t, "x": [t / 2, 1.0], "word": f"w{t % 3}"} for t in range(20_000)]
    text = json.dumps(rows, indent=indent).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    table = scanned(tmp_path / name, "ndjson", columns=("t", "x"), where="word = 'w1'")
    assert table.drop_columns([SOURCE_ROW]).to_pylist() == [{"t": row["t"], "x": row["x"]} for row in rows[1::3]]
    first = FirstRows.of(READERS["ndjson"].reader(Location.of(str(tmp_path / name))))
    assert first.error is None and first.tables[0].num_rows == 4096 and not first.is_whole
