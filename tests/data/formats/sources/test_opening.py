"""From paths to readers: what is found, what is left out, and what the format is taken for."""

from __future__ import annotations

import gzip
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from offline_core.data.formats.sources import readers
from offline_core.data.formats.sources.fingerprint import files_of
from offline_core.data.formats.sources.first_rows import FirstRows
from offline_core.data.formats.sources.listing import Listing
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.errors import (
    ConfigError,
    DataError,
    DatasetNotFoundError,
    EmptyDatasetError,
    OfflineError,
    SchemaError,
    StorageError,
)
from tests.data.datasets.factories import episode, write_dataset
from tests.data.formats.sources.factories import (
    SCALARS,
    SEEDS,
    check_steps,
    format_of,
    imported,
    imported_episodes,
    scalar_steps,
    steps,
    write_steps,
)

SAMPLE_BATCH = '{"type": "SampleBatch", "eps_id": [1], "t": [0], "obs": [[0.0]], "new_obs": [[1.0]], "actions": [0], '
SAMPLE_BATCH += '"rewards": [1.0], "terminateds": [true], "truncateds": [false]}\n'


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def found(folder: Path, *patterns: str, **config: Any) -> list[str]:
    """The files that are found, relative to the folder."""
    paths = [f"{folder}/{pattern}" for pattern in patterns] or [str(folder)]
    return [os.path.relpath(reader.uri, folder) for reader in open_source(paths, SourceConfig(**config))]


# Places.


def test_a_folder_with_all_below_it(tmp_path: Path) -> None:
    touch(tmp_path, "b.csv", "a b/ü.csv", "a b/deep/er/ö%20[1].CSV")
    assert found(tmp_path) == ["a b/deep/er/ö%20[1].CSV", "a b/ü.csv", "b.csv"]


def test_hidden_files_are_no_data(tmp_path: Path) -> None:
    touch(tmp_path, "a.csv", ".tmp-123.csv", "_SUCCESS", "_delta_log/0.json", ".cache/x.csv", "_b.csv")
    assert found(tmp_path) == ["a.csv"]
    assert found(tmp_path, "*.csv") == ["a.csv"]
    assert found(tmp_path, "_b.csv") == ["_b.csv"], "if named"


def test_patterns(tmp_path: Path) -> None:
    touch(tmp_path, "run-1/a.csv", "run-1/x/b.csv", "run-2/c.csv", "other/d.csv")
    assert found(tmp_path, "run-?/*.csv") == ["run-1/a.csv", "run-2/c.csv"]
    assert found(tmp_path, "**/*.csv") == ["other/d.csv", "run-1/a.csv", "run-1/x/b.csv", "run-2/c.csv"]
    assert found(tmp_path, "run-*") == ["run-1/a.csv", "run-1/x/b.csv", "run-2/c.csv"], "folders too"
    assert found(tmp_path, "**") == ["other/d.csv", "run-1/a.csv", "run-1/x/b.csv", "run-2/c.csv"], "each once"


def test_a_list_of_places_in_its_order(tmp_path: Path) -> None:
    touch(tmp_path, "b.csv", "sub/a.csv")
    assert found(tmp_path, "sub", "b.csv") == ["sub/a.csv", "b.csv"]
    assert found(tmp_path, "b.csv", "", "*.csv") == ["b.csv", "sub/a.csv"], "each once"


def test_names_that_look_like_patterns(tmp_path: Path) -> None:
    touch(tmp_path, "run[1]/a.csv", "run1/b.csv", "y*z.csv")
    assert found(tmp_path, "run[1]") == ["run[1]/a.csv"]
    assert found(tmp_path, "y*z.csv") == ["y*z.csv"]


def test_relative_paths_and_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "sub dir/a.csv")
    monkeypatch.chdir(tmp_path)
    uris = [open_source([path])[0].uri for path in ("sub dir", "./sub dir/a.csv", "*/a.csv", f"file://{tmp_path}/sub%20dir")]
    assert uris == [f"{tmp_path}/sub dir/a.csv"] * 4


@pytest.mark.parametrize("path", ["nothing", "nothing/*.csv", "*.parquet"])
def test_nothing_there(tmp_path: Path, path: str) -> None:
    touch(tmp_path, "a.csv")
    with pytest.raises(DatasetNotFoundError, match=r"There is nothing at .*Check the path"):
        found(tmp_path, path)


@pytest.mark.parametrize("config", [{}, {"format": "parquet"}])
def test_no_data_files(tmp_path: Path, config: dict[str, str]) -> None:
    touch(tmp_path, "readme.txt", "sub/picture.png")
    with pytest.raises(EmptyDatasetError, match=f"no data files .*parquet.* at {tmp_path}.*a pattern"):
        found(tmp_path, **config)


def test_files_of_other_names_by_a_pattern(tmp_path: Path) -> None:
    touch(tmp_path, "a.dat", "b.dat", "readme.txt")
    assert found(tmp_path, "*.dat", format="csv") == ["a.dat", "b.dat"]
    with pytest.raises(ConfigError, match=r"a\.dat has no known suffix; set the format: avro, csv"):
        found(tmp_path, "*.dat")


def test_datasets_of_ours_are_not_imported(tmp_path: Path) -> None:
    write_dataset(tmp_path / "theirs" / "ours", [episode(0)], "table")
    write_steps(tmp_path / "theirs" / "a.parquet", steps())
    assert found(tmp_path / "theirs") == ["a.parquet"], "nor what was written below the source"
    for path in ("theirs/ours", "theirs/o*"):
        with pytest.raises(ConfigError, match="theirs/ours is a dataset already"):
            found(tmp_path, path)


# Formats.


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("x.parquet", "parquet"),
        ("x.csv", "csv"),
        ("x.json", "ndjson"),
        ("x.jsonl", "ndjson"),
        ("x.ndjson", "ndjson"),
        ("x.arrow", "ipc"),
        ("x.feather", "ipc"),
        ("x.npz", "npz"),
    ],
)
def test_the_format_shows_in_the_name(tmp_path: Path, name: str, format: str) -> None:
    columns, mapping = (scalar_steps(), SCALARS) if format == "csv" else (steps(), SEEDS)
    write_steps(tmp_path / name, columns)
    assert format_of(tmp_path) == format_of(str(tmp_path / name)) == format
    check_steps(imported_episodes(tmp_path, tmp_path / name, mapping=mapping))


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("cartpole_episodes", "episodes"),
        ("pendulum_episodes", "episodes"),
        ("cartpole_table_packed", "parquet"),
        ("pendulum_table", "parquet"),
        ("cartpole_json_plain", "sample_batch"),
        ("cartpole_json_packed", "sample_batch"),
    ],
)
def test_the_formats_of_rllibs_recordings(rllib_recordings: Path, name: str, format: str) -> None:
    assert format_of(str(rllib_recordings / name)) == format


def test_sample_batches_by_their_content(tmp_path: Path) -> None:
    for name, text in (("rllib.json", SAMPLE_BATCH), ("blank.json", f"\n {SAMPLE_BATCH}")):
        (tmp_path / name).write_text(text)
        assert format_of(str(tmp_path / name)) == "sample_batch"
    (tmp_path / "steps.json").write_text('{"obs": [1.0], "type": "SampleBatch"}\n')
    (tmp_path / "typed.json").write_text('{"type": "step", "obs": [1.0]}\n')
    for name in ("steps.json", "typed.json"):
        assert format_of(str(tmp_path / name)) == "ndjson"


def test_rllibs_recorder_compresses_too(rllib_recordings: Path, tmp_path: Path) -> None:
    first, second = sorted((rllib_recordings / "cartpole_json_plain").rglob("*.json"))[:2]
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(first, "a.json")
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(second.read_bytes()))
    formats = [format_of(str(tmp_path / name)) for name in ("a.zip", "b.json.gz")]
    assert formats == ["zip", "sample_batch"] and found(tmp_path, format="sample_batch") == ["a.zip/a.json", "b.json.gz"]
    readers = [*open_source([str(tmp_path / "a.zip")]), *open_source([str(tmp_path / "b.json.gz")])]
    rows = sum(batch.num_rows for reader in readers for batch in reader.batches())
    plain = sum(batch.num_rows for reader in open_source([str(first), str(second)]) for batch in reader.batches())
    assert rows == plain > 0


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.ndjson", "x.csv"])
def test_compressed_text(tmp_path: Path, name: str) -> None:
    columns, mapping = (scalar_steps(), SCALARS) if name == "x.csv" else (steps(), SEEDS)
    write_steps(tmp_path / name, columns)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    check_steps(imported_episodes(tmp_path, tmp_path / "sub", mapping=mapping))


@pytest.mark.parametrize("name", ["x.hdf5", "x.h5"])
def test_hdf5_files_by_their_names(tmp_path: Path, name: str) -> None:
    touch(tmp_path, name)
    assert format_of(tmp_path) == "hdf5"


@pytest.mark.parametrize("mark", ["main_data.hdf5", "metadata.json"])
def test_minari_is_a_folder(tmp_path: Path, mark: str) -> None:
    touch(tmp_path, f"data/{mark}", "data/0.arrow")
    assert format_of(tmp_path) == "minari"
    assert [reader.uri for reader in open_source([str(tmp_path)])] == [str(tmp_path)]


def test_a_folder_of_several_formats(tmp_path: Path) -> None:
    write_steps(tmp_path / "a.csv", {"x": [1]})
    write_steps(tmp_path / "b.parquet", {"x": [1]})
    with pytest.raises(
        ConfigError, match=r"different formats at .*csv, as .*a\.csv; parquet, as .*b\.parquet.*Name the format"
    ):
        found(tmp_path)
    assert found(tmp_path, format="csv") == ["a.csv"]


def test_places_of_several_formats(tmp_path: Path) -> None:
    write_steps(tmp_path / "a.csv", {"x": [1]})
    write_steps(tmp_path / "b.parquet", {"x": [1]})
    with pytest.raises(ConfigError, match=r"a\.csv, .*b\.parquet are of different formats: csv, parquet"):
        imported(tmp_path, [str(tmp_path / "a.csv"), str(tmp_path / "b.parquet")])


def test_files_of_episodes_are_no_steps(rllib_recordings: Path) -> None:
    folder = str(rllib_recordings / "pendulum_episodes")
    files = open_source([folder, folder])
    with pytest.raises(ConfigError, match="holds episodes and not steps"):
        next(iter(files[0].batches()))
    assert [file.uri for file in files] == sorted(map(str, (rllib_recordings / "pendulum_episodes").rglob("*.parquet")))


def test_an_unknown_format(tmp_path: Path) -> None:
    touch(tmp_path, "a.csv")
    with pytest.raises(ConfigError, match="no format 'xlsx'; there are auto, avro, csv"):
        found(tmp_path, format="xlsx")


@pytest.mark.parametrize("name", ["x.npz", "x.csv", "x.parquet", "x.ndjson", "x.arrow"])
def test_arguments_that_a_format_does_not_take(tmp_path: Path, name: str) -> None:
    write_steps(tmp_path / name, scalar_steps())
    with pytest.raises(ConfigError, match=r"not take these arguments: .*no_such"):
        imported(tmp_path, tmp_path / name, source={"arguments": {"no_such": 1}})


@pytest.mark.parametrize("pushdown", [{"columns": ["x"]}, {"where": "x > 1"}])
@pytest.mark.parametrize("format", ["minari", "read_parquet", "tests.data.formats.sources.test_custom:Numbers"])
def test_formats_without_pushdown(tmp_path: Path, format: str, pushdown: dict[str, Any]) -> None:
    touch(tmp_path, "x.json")
    with pytest.raises(ConfigError, match=f"{next(iter(pushdown))} does not work with the format {format}; choose"):
        found(tmp_path, format=format, **pushdown)


@pytest.mark.parametrize(("name", "format"), [("x.npz", "npz"), ("x.h5", "hdf5")])
def test_formats_of_arrays_have_no_condition(tmp_path: Path, name: str, format: str) -> None:
    touch(tmp_path, name)
    assert found(tmp_path, format=format, columns=["x"]) == [name]
    with pytest.raises(ConfigError, match=f"where does not work with the format {format}; .*prune rows after the import"):
        found(tmp_path, format=format, columns=["x"], where="x > 1")


@pytest.mark.parametrize("format", ["auto", "csv", "read_csv", "tests.data.formats.sources.test_custom:Numbers"])
def test_no_place_at_all(tmp_path: Path, format: str) -> None:
    with pytest.raises(ConfigError, match="name at least one source"):
        open_source([], SourceConfig(format=format))
    with pytest.raises(ConfigError, match="name at least one source"):
        imported(tmp_path, [], source={"format": format})


def test_a_truncated_parquet_file_is_named(tmp_path: Path) -> None:
    write_steps(tmp_path / "x.parquet", steps())
    (tmp_path / "x.parquet").write_bytes((tmp_path / "x.parquet").read_bytes()[:-9])
    with pytest.raises(OfflineError, match=r"x\.parquet is no readable Parquet file"):
        format_of(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    write_steps(tmp_path / "x.csv", steps())
    (tmp_path / "x.csv").chmod(0)
    with pytest.raises(StorageError, match=r"x\.csv: permission denied"):
        imported(tmp_path, tmp_path)


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    write_steps(tmp_path / "x.csv", scalar_steps(_source_file=[1] * 5))
    with pytest.raises(SchemaError, match=r"x\.csv: There is a column _source_file, a name that is taken here; rename it"):
        imported(tmp_path, tmp_path / "x.csv", mapping=SCALARS)


# Names.


def test_a_stream_of_arrow_that_is_cut_is_refused(tmp_path: Path) -> None:
    table = pa.table({"x": list(range(1000))})
    with pa.ipc.new_stream(str(tmp_path / "x.arrow"), table.schema) as stream:
        stream.write_table(table)
    (tmp_path / "x.arrow").write_bytes((tmp_path / "x.arrow").read_bytes()[:2000])
    [reader] = open_source([str(tmp_path / "x.arrow")])
    with pytest.raises(DataError, match=r"x\.arrow cannot be read as ipc"):
        [*reader.batches()]


@pytest.mark.parametrize("name", ["x.pq", "x.parq"])
def test_parquet_has_several_names(tmp_path: Path, name: str) -> None:
    write_steps(tmp_path / "x.parquet", steps())
    (tmp_path / "x.parquet").rename(tmp_path / name)
    check_steps(imported_episodes(tmp_path, tmp_path / name))


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("x.xlsx", "workbook of Excel: save each of its sheets as CSV"),
        ("x.pkl", "never read: save its arrays"),
        ("x.sqlite", "read_sql"),
    ],
)
def test_formats_that_are_not_read_are_told_with_what_helps(tmp_path: Path, name: str, cure: str) -> None:
    touch(tmp_path, name)
    with pytest.raises(ConfigError, match=cure):
        found(tmp_path, name)
    with pytest.raises(EmptyDatasetError, match=cure):
        found(tmp_path)


def test_a_format_is_one_decorated_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "FORMATS", registry := dict(readers.FORMATS))
    monkeypatch.setattr("offline_core.data.formats.sources.opening.FORMATS", registry)

    @readers.reader("numbers", suffixes=[".numbers"], arguments="first")
    @dataclass(frozen=True)
    class NumbersFile(readers.FileReader):
        def read(self) -> Iterator[pa.Table]:
            yield pa.table({"x": [self.arguments.get("first", 0), 1]})

    touch(tmp_path, "day=7/x.numbers")
    assert format_of(tmp_path) == "numbers"
    [reader] = open_source([str(tmp_path)], SourceConfig(arguments={"first": 5}))
    assert [batch.to_pydict() for batch in reader.batches()] == [{"x": [5, 1], "day": [7, 7]}]
    assert [path for path, _, _ in files_of(reader, Listing())] == [reader.uri]
    assert FirstRows.of(reader).tables[0].num_rows == 2
    with pytest.raises(ConfigError, match="numbers does not take these arguments: second; it takes only first"):
        open_source([str(tmp_path)], SourceConfig(arguments={"second": 5}))
    with pytest.raises(ConfigError, match="where does not work with the format numbers"):
        open_source([str(tmp_path)], SourceConfig(where="x > 1"))
