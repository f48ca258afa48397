"""CSV and JSON in other encodings, with other separators and decimal commas: read and said, or refused with what mends it."""

from __future__ import annotations

import dataclasses
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.formats.sources.first_rows import FirstRows
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.data.formats.sources.scans import ScannedFile
from offline_core.data.formats.sources.step_reader import StepReader, Unreadable, empty_rows_of, note_of
from offline_core.data.formats.sources.text_form import note_on_repeated, separators
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.importing.planning.plan import plan_import
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, CorruptFileError
from offline_core.runtime.config import parse

ROWS = [{"id": 1, "x": 0.5, "note": "ä, b"}, {"id": 2, "x": -1.25, "note": "ö"}]


def text(separator: str = ",", point: str = ".", end: str = "\n") -> str:
    lines = [["id", "x", "note"], *([str(row["id"]), str(row["x"]).replace(".", point), f'"{row["note"]}"'] for row in ROWS)]
    return end.join(separator.join(line) for line in lines) + end


LINES = '{"id": 1, "x": 0.5, "note": "ä, b"}\n{"id": 2, "x": -1.25, "note": "ö"}\n'


def opened(folder: Path, name: str, data: bytes, **arguments: Any) -> ScannedFile:
    (folder / name).write_bytes(data)
    [reader] = open_source([str(folder / name)], SourceConfig(arguments=arguments))
    assert isinstance(reader, ScannedFile)
    return reader


def read(reader: StepReader) -> tuple[list[dict[str, Any]], str | None]:
    [table] = reader.batches()
    assert isinstance(table, pa.Table)
    return table.drop_columns(["_source_row"]).to_pylist(), note_of(table)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize(("name", "content"), [("x.csv", text()), ("x.csv.gz", text()), ("x.ndjson", LINES)])
def test_encodings_that_are_recognised(encoding: str, name: str, content: str, tmp_path: Path) -> None:
    data = content.encode(encoding)
    reader = opened(tmp_path, name, gzip.compress(data) if name.endswith("gz") else data)
    for each in (reader, FirstRows.of(reader)):
        rows, note = read(each)
        assert rows == ROWS
        if encoding.startswith("utf-8"):
            assert note is None
        else:
            form = name.split(".")[1].upper()
            assert note is not None and f"{form} files are read with the encoding {encoding} where their first lines" in note
            assert f"source.arguments: {{encoding: '{encoding}'}}." in note
    given = dataclasses.replace(reader, arguments={"encoding": encoding})
    assert read(given) == read(FirstRows.of(given)) == (ROWS, None)


def test_an_encoding_and_a_separator_are_one_note(tmp_path: Path) -> None:
    reader = opened(tmp_path, "x.csv", text(";", ",").encode("utf-16"))
    for each in (reader, FirstRows.of(reader)):
        rows, note = read(each)
        assert rows == ROWS and note is not None
        assert "the encoding utf-16 and the separator ';' and decimal commas where their first lines show it" in note
        assert "source.arguments: {encoding: 'utf-16', separator: ';', decimal_comma: true}" in note


@pytest.mark.parametrize(("name", "content"), [("x.csv", text()), ("x.ndjson", LINES)])
def test_encodings_that_are_not_are_named_and_can_be_given(name: str, content: str, tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match=r"not UTF-8|codec") as error:
        [*opened(tmp_path, name, content.encode("cp1252")).batches()]
    assert "source.arguments: {encoding: cp1252}" in str(error.value)
    assert read(opened(tmp_path, name, content.encode("cp1252"), encoding="cp1252")) == (ROWS, None)
    with pytest.raises(CorruptFileError, match=r"is not text in ascii.*source\.arguments: {encoding: NAME}"):
        [*opened(tmp_path, name, content.encode("cp1252"), encoding="ascii").batches()]


@pytest.mark.parametrize("encoding", ["utf-7b", "hex", "rot13", 5])
def test_what_is_no_encoding_of_text(encoding: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="encoding"):
        [*opened(tmp_path, "x.csv", text().encode(), encoding=encoding).batches()]


def test_a_first_part_of_a_large_file_ends_with_a_whole_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offline_core.data.formats.sources.first_rows.TEXT_BYTES", 101)
    rows = "".join(f"{i},{i}.5,ä\n" for i in range(200))
    first = FirstRows.of(opened(tmp_path, "x.csv", f"id,x,note\n{rows}".encode("utf-16")))
    [table] = first.tables
    assert not first.is_whole and 0 < table.num_rows < 20
    assert table["x"].to_pylist() == [i + 0.5 for i in range(table.num_rows)] and {*table["note"].to_pylist()} == {"ä"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (text(";"), "the separator ';' where"),
        (text(";", ","), "the separator ';' and decimal commas where"),
        (text("\t", ","), "source.arguments: {separator: '\\t', decimal_comma: true}"),
        (text("|"), "the separator '|'"),
        ("sep=;\n" + text(";"), "source.arguments: {separator: ';', skip_lines: 1}"),
        (text(end="\r"), "the line end '\\r'"),
        (text(";", end="\r\n"), "the separator ';'"),
    ],
)
@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
def test_separators_and_decimal_commas_that_are_recognised(content: str, said: str, name: str, tmp_path: Path) -> None:
    data = gzip.compress(content.encode()) if name.endswith("gz") else content.encode()
    rows, note = read(opened(tmp_path, name, data))
    assert rows == ROWS and note is not None and said in note
    assert read(FirstRows.of(opened(tmp_path, name, data)))[0] == ROWS


@pytest.mark.parametrize("name", ["x.tsv", "x.tsv.gz", "x.tab"])
def test_tabs_by_the_name_of_the_file(name: str, tmp_path: Path) -> None:
    data = text("\t").encode()
    assert read(opened(tmp_path, name, gzip.compress(data) if name.endswith("gz") else data)) == (ROWS, None)


@pytest.mark.parametrize(
    ("content", "arguments", "wanted"),
    [
        ("a;b,c\n1;2,3\n", {}, {"a;b": "1;2", "c": 3}),
        ('"a;b;c",d\n1,2\n', {}, {"a;b;c": 1, "d": 2}),
        ("a b\n1\n", {}, {"a b": 1}),
        ("a;b\n1;2\n", {"separator": ","}, {"a;b": "1;2"}),
        ("a;b\n1,5;2.5\n", {}, {"a": "1,5", "b": 2.5}),
        ("time;temp, C;valve\n1;2,5;0\n", {}, {"time": 1, "temp, C": 2.5, "valve": 0}),
    ],
)
def test_what_is_taken_as_it_is(content: str, arguments: dict[str, Any], wanted: dict[str, Any], tmp_path: Path) -> None:
    assert read(opened(tmp_path, "x.csv", content.encode(), **arguments))[0] == [wanted]


def test_what_is_recognised_is_said_by_the_import_and_its_plan(tmp_path: Path) -> None:
    rows = [f"{i // 3};{i % 3};0,5;{i % 2};1" for i in range(6)]
    (tmp_path / "log.csv").write_text("\n".join(["eps_id;t;x;actions;rewards", *rows]))
    (tmp_path / "prices.csv").write_text("t\tprice\n0\t0,25\n1\t0,5\n2\t1,0\n")
    columns = {"joins": [{"source": str(tmp_path / "prices.csv"), "on": ["t"], "columns": ["price"]}]}
    values = {"columns": columns, "mapping": {"obs": ["x", "price"]}, "episodes": {"last_new_obs": "repeat"}}
    config = parse(ImportConfig, values)
    made = import_data(config, source=str(tmp_path / "log.csv"), output=str(tmp_path / "out"))
    said = [note for note in made.notes if "CSV files are read with" in note]
    assert "the separator ';' and decimal commas" in said[0] and "prices.csv: CSV files" in said[1]
    plan = plan_import(config, source=str(tmp_path / "log.csv"))
    assert plan.is_ready and said[0] in plan.notes


@pytest.mark.parametrize(
    ("content", "arguments", "values"),
    [
        ("price;p\n950;0,55\n1.234.567;0,5\n", {}, [950, 1234567]),
        ("price;p\n2.107,50;1\n-950,25;2\n", {}, [2107.5, -950.25]),
        ("price;p\n2.107,50;0,5\n1.234,00;0,25\n", {}, [2107.5, 1234.0]),
        ("price;p\n2.107,50;1\n1.234;2\n", {"decimal_comma": True}, [2107.5, 1234.0]),
        ("price;p\n2.107;0,55\n950;0,5\n", {}, [2.107, 950]),
        ("price;p\n2.107;1\n3.114;2\n", {"decimal_comma": True}, ["2.107", "3.114"]),
        ("price;p\n10.001;0,5\n10.002;0,25\n", {}, [10.001, 10.002]),
        ("price;p\n192.168.100.200;0,5\n192.168.100.201;0,25\n", {}, ["192.168.100.200", "192.168.100.201"]),
        ("price;p\n1.234.567.890.123.456.789.012;0,5\n1;0,25\n", {}, ["1.234.567.890.123.456.789.012", "1"]),
        ("price;p\n1.125;0\n2.250;10,5cm\n", {}, [1.125, 2.25]),
        ("price;p\n1.125;a\n2.250;3,4\n", {}, [1.125, 2.25]),
        ("price;p\n2.107;0,55\n3.114;0,5\n", {"schema_overrides": {"price": "String"}}, ["2.107", "3.114"]),
        ("price;p\n2.107;0,55\nfree;0,5\n", {}, ["2.107", "free"]),
        ("price;p\n1.500;1\n2.250;2\n", {}, [1.5, 2.25]),
        ("price;p\n2.107;1\n950;2\n", {}, [2.107, 950]),
        ("price|p\n1.107|1\n950|2\n", {}, [1.107, 950]),
        ("price;p\n1.107;1\n1950;2\n", {}, [1.107, 1950]),
        ('price;p\n1.500;"2,107"\n2.250;"3,114"\n', {}, [1.5, 2.25]),
        ("price;p\n0.500;0,55\n0.250;0,5\n", {}, [0.5, 0.25]),
    ],
)
def test_points_beside_decimal_commas_separate_thousands(
    content: str, arguments: dict[str, Any], values: list[Any], tmp_path: Path
) -> None:
    reader = opened(tmp_path, "x.csv", content.encode(), **arguments)
    for each in (reader, FirstRows.of(reader)):
        rows, note = read(each)
        assert [row["price"] for row in rows] == values
        assert ("Points in price are read as those" in (note or "")) == (values[0] in (950, 2107.5))
        is_doubtful = values[0] in (2.107, 10.001) or (values[0] == "2.107" and "schema_overrides" not in arguments)
        assert ("may be thousands" in (note or "")) == (is_doubtful and "free" not in values)


def test_a_warning_of_points_names_what_settles_it(tmp_path: Path) -> None:
    rows = [f"{i // 3};{i % 3};0,5;{i % 2};{i + 1}.125" for i in range(6)]
    (tmp_path / "log.csv").write_text("\n".join(["eps_id;t;obs;actions;price", *rows]))

    def imported(name: str, rewards: str, **more: Any) -> tuple[list[float], list[str]]:
        values = {**more, "mapping": {"rewards": rewards}, "episodes": {"last_new_obs": "repeat"}}
        made = import_data(parse(ImportConfig, values), source=str(tmp_path / "log.csv"), output=str(tmp_path / name))
        first = next(iter(open_dataset(str(tmp_path / name)).episodes()))
        return first.rewards.tolist(), [note for note in made.notes if "may be thousands" in note]

    rewards, [warning] = imported("decimals", "price", source={"arguments": {"decimal_comma": True}})
    assert rewards == [1.125, 2.125, 3.125]
    source, computed = warning.split("texts: ", 1)[1].split("; and if they are thousands, compute the numbers: ", 1)
    arguments = yaml.safe_load(source)["source"]["arguments"] | {"decimal_comma": True}
    made = yaml.safe_load(computed.removesuffix("."))["columns"]
    assert imported("thousands", "NAME", source={"arguments": arguments}, columns=made) == ([1125.0, 2125.0, 3125.0], [])


@pytest.mark.parametrize("name", ["x.csv", "x.ndjson"])
def test_whole_numbers_beyond_64_bits_are_texts(name: str, tmp_path: Path) -> None:
    large = 10**20 + 1
    content = f"a,b\n{large},1\n2,1\n" if name == "x.csv" else f'{{"a": {large}, "b": 1}}\n{{"a": 2, "b": 1}}\n'
    reader = opened(tmp_path, name, content.encode())
    for each in (reader, FirstRows.of(reader)):
        rows, note = read(each)
        assert [row["a"] for row in rows] == [str(large), "2"]
        assert "Whole numbers of a are beyond what 64 bits hold" in str(note)


@pytest.mark.parametrize("after", ["", "x,1,2\n"])
def test_lines_without_any_value_are_no_rows_and_counted(after: str, tmp_path: Path) -> None:
    """Others keep their numbers, also where a line cannot be read."""
    reader = opened(tmp_path, "x.csv", f"a,b\n1,2\n\n,\n3,\n{after}\n".encode())
    for each in (reader, FirstRows.of(reader)):
        [table] = (batch for batch in each.batches() if isinstance(batch, pa.Table))
        assert table.to_pylist() == [{"_source_row": 0, "a": 1, "b": 2}, {"_source_row": 3, "a": 3, "b": None}]
        assert empty_rows_of(table) == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [('{"r": 1, "a": 2, "r": 5}', True), ('[{"a": {"r": 1, "r": 2}}]', True), ('{"r": 1, "a": {"r": 2}}', False), ("{", False)],
)
def test_a_name_that_comes_twice_in_json_is_noted(line: str, said: bool, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(line)
    note = note_on_repeated(Location.on_disk(str(tmp_path / "x.json")))
    assert (note is not None and "Objects of JSON have r twice" in note) == said


def test_a_file_of_json_gets_its_note(tmp_path: Path) -> None:
    rows, note = read(opened(tmp_path, "x.jsonl", b'{"r": 1, "r": 5}\n{"r": 2, "r": 6}\n'))
    assert [row["r"] for row in rows] == [1, 2] and "the first value is taken" in str(note)


def test_a_line_of_json_with_another_kind_of_value_is_named(tmp_path: Path) -> None:
    lines = ['{"a": {"x": 1.5}, "b": null}', '{"a": {"x": [1.5]}, "b": 1}', '{"a": null, "b": "2"}']
    lines += ['{"a": {"x": 2}, "b": {}}', '{"a": {"x": true}}']
    every = [*opened(tmp_path, "x.jsonl", "\n".join(lines).encode()).batches()]
    assert [each["_source_row"].to_pylist() for each in every if isinstance(each, pa.Table)] == [[0, 2]]
    assert [(each.row, str(each.error)) for each in every if isinstance(each, Unreadable)] == [
        (1, "line 2 has a list as 'a.x', where line 1 has a number; write them in one way."),
        (3, "line 4 has an object as 'b', where line 2 has a number; write them in one way."),
        (4, "line 5 has true or false as 'a.x', where line 1 has a number; write them in one way."),
    ]


def test_a_header_alone_tells_no_separator_that_commas_contradict(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("first name,last name,x y z\n")
    assert separators(Location.on_disk(str(tmp_path / "x.csv")), {}) == {}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("user,x\n000037,1\n1000,2\n", "Numbers of user begin"),
        ('user,"zip, code"\n000037,01234\n', "Numbers of user and zip, code begin"),
        ("hour,x\n08,1\n17,2\n", None),
        ("code,x\n00A1,1\n0001,2\n", None),
        ("x,y\n0.5,0\n", None),
        ("user,x\n" + 9000 * "000037,1\n" + "00A1,2\n", None),
        ("000037,1\n000038,1\n", None),
        ("user;x\n000037;1,5\n", "Numbers of user begin"),
    ],
)
def test_zeros_before_numbers_are_told_and_can_be_kept(content: str, said: str | None, tmp_path: Path) -> None:
    note = read(opened(tmp_path, "x.csv", content.encode()))[1] or ""
    if said is None:
        assert "zeros" not in note
        return
    assert said in note
    given = yaml.safe_load(note[note.index("source: ") :].partition("}}}.")[0] + "}}}")
    rows, more = read(opened(tmp_path, "x.csv", content.encode(), **given["source"]["arguments"]))
    assert rows[0]["user"] == "000037" and "zeros" not in (more or "")


def test_a_type_that_polars_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="schema_overrides has the type 'Text'; types of text files are String, Boolean"):
        read(opened(tmp_path, "x.csv", b"user,x\n000037,1\n", schema_overrides={"user": "Text"}))


@pytest.mark.parametrize("end", ["c,3", 'c,"3', "c,3,x\n", "c,3,x", 'c,3,"x\ny"', "c,3\n"])
def test_a_last_line_that_was_cut_is_no_row(tmp_path: Path, end: str) -> None:
    """With an end of line it is short, as spreadsheets leave trailing values out."""
    (tmp_path / "log.csv").write_text(f"name,number,note\na,1,x\nb,2,x\n{end}")
    [reader] = open_source([str(tmp_path / "log.csv")], SourceConfig())
    assert isinstance(reader, StepReader)
    read = [*reader.batches()]
    rows = sum(batch.num_rows for batch in read if isinstance(batch, pa.Table))
    refused = [batch for batch in read if isinstance(batch, Unreadable)]
    is_cut = end in ("c,3", 'c,"3')
    assert (rows, len(refused)) == (2, 1) if is_cut else (rows, len(refused)) == (3, 0)
    assert not is_cut or "line 4" in str(refused[0].error)


def test_a_last_line_is_held_against_a_row_and_not_against_what_was_refused(tmp_path: Path) -> None:
    for text, rows in (("a,b,c\n1,2,3\n1,2,3,4\n4,5,6", 2), ('a,b,c\n1,2,3\n1,"2,3\n4,5,6', 2), ("a,b,c\n1,2,3\n4,5", 1)):
        for name, packed in (("log.csv", text.encode()), ("log.csv.gz", gzip.compress(text.encode()))):
            (tmp_path / name).write_bytes(packed)
            [reader] = open_source([str(tmp_path / name)], SourceConfig())
            assert isinstance(reader, StepReader)
            read = [*reader.batches()]
            assert sum(batch.num_rows for batch in read if isinstance(batch, pa.Table)) == rows
            assert len([batch for batch in read if isinstance(batch, Unreadable)]) == 1


def test_a_header_without_an_end_is_no_line_that_was_cut(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("made, by, x, y\na,b,c")
    [reader] = open_source([str(tmp_path / "log.csv")], SourceConfig(arguments={"skip_lines": 1}))
    assert isinstance(reader, StepReader) and not sum(batch.num_rows for batch in reader.batches())
