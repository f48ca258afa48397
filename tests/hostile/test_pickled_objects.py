"""Ray's Arrow type for pickled objects, in a process that has imported Ray Data, which unpickles values that are taken."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import lance
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from ray.data import extensions
from ray.data._internal.object_extensions.arrow import ArrowPythonObjectType

from offline_core.data.curation.scores import scores_of, write_scores
from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.datasets.verify import verify
from offline_core.data.episodes import columns
from offline_core.data.episodes.arrow import refuse_extension_types
from offline_core.data.formats.sources.first_rows import FirstRows
from offline_core.data.formats.sources.opening import CustomReader, SourceConfig, open_source
from offline_core.data.formats.sources.ray_reads import RayRead
from offline_core.data.formats.sources.small_files import small_files
from offline_core.data.importing.imported import Imported
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError, DataError, UnsafeDataError
from offline_core.keeping.homepage.explorer import read_scores
from offline_core.learning.prelearner.connectors import Pipeline
from offline_core.learning.prelearner.mapper import Mapper
from tests.data.datasets.factories import FORMATS, edit_json, episode, write_dataset

PAYLOAD = b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x10touch PICKLE_RAN\x85R."
"""`os.system("touch PICKLE_RAN")` as a pickle."""
EPISODES = [episode(i) for i in range(3)]
REFUSED = "has the Arrow extension type ray.data.arrow_pickled_object"


@pytest.fixture(autouse=True)
def nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    assert not Path("PICKLE_RAN").exists()


def pickled(rows: int) -> pa.Array:
    return ArrowPythonObjectType().wrap_array(pa.array([PAYLOAD] * rows, pa.large_binary()))


def in_list(rows: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(rows + 1), pa.int32()), pickled(rows))


def in_struct(rows: int) -> pa.Array:
    return pa.StructArray.from_arrays([in_list(rows)], ["inner"])


def in_map(rows: int) -> pa.Array:
    return pa.MapArray.from_arrays(pa.array(range(rows + 1), pa.int32()), pa.array(["key"] * rows), pickled(rows))


SHAPES: list[Callable[[int], pa.Array]] = [pickled, in_list, in_struct, in_map]


def hide(dataset: Dataset, name: str, shape: Callable[[int], pa.Array] = pickled) -> None:
    """Let a column of all files be pickled objects, and all hashes and checksums be right."""
    manifest = Path(dataset.location.path) / "_versions" / "000001.json"
    entries = json.loads(manifest.read_text())["files"]
    for entry in entries:
        file = dataset.location.child(entry["path"]).path
        table = pq.read_table(file)
        if name in table.column_names:
            table = table.drop_columns([name])
        table = table.append_column(name, shape(len(table)))
        pq.write_table(table, file, row_group_size=max(entry["group_rows"]), write_page_checksum=True)
        data = Path(file).read_bytes()
        entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "footer_sha256": None}
    edit_json(manifest, files=entries)


def mapped(dataset: Dataset) -> None:
    """What a prelearner's actor does with rows that another reader has handed to it."""
    rows = pa.table({columns.ITEM: pickled(3)})
    mapper = Mapper(None, "episodes", (), False, "data", Pipeline((), None))
    mapper(rows)


READS: dict[str, Callable[[Dataset], Any]] = {
    "episodes": lambda dataset: list(dataset.episodes()),
    "row groups": lambda dataset: [group.episodes() for group in dataset.row_groups()],
    "tables": lambda dataset: [table.to_pylist() for table in dataset.tables()],
    "prelearner": mapped,
}


@pytest.mark.parametrize("name", [columns.ITEM, columns.INFOS, columns.CUSTOM_DATA])
@pytest.mark.parametrize("read", READS)
def test_pickled_objects_in_a_dataset(tmp_path: Path, read: str, name: str) -> None:
    dataset = write_dataset(tmp_path / "data", EPISODES, format="episodes" if name == columns.ITEM else "table")
    hide(dataset, name)
    with pytest.raises(DataError, match=f"Column '(item|{name})' of .*{REFUSED}"):
        READS[read](open_dataset(str(tmp_path / "data")))


def test_the_spaces_of_a_dataset_are_not_unpickled(tmp_path: Path) -> None:
    hide(write_dataset(tmp_path / "data", EPISODES), columns.ITEM)
    edit_json(tmp_path / "data" / "_versions" / "000001.json", observation_space=None)
    with pytest.raises(UnsafeDataError, match=f"'item' of .*{REFUSED}"):
        _ = open_dataset(str(tmp_path / "data")).spaces


@pytest.mark.parametrize("format", FORMATS)
def test_a_verified_dataset_without_pickled_objects_only(tmp_path: Path, format: Any) -> None:
    hide(write_dataset(tmp_path / "data", EPISODES, format=format), "extra", in_struct)
    [found] = verify(str(tmp_path / "data"))
    assert f"Column 'extra' of {tmp_path}" in found.wrong[0] and REFUSED in found.wrong[0]


def test_a_manifest_without_its_checksum(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", EPISODES)
    manifest = tmp_path / "data" / "_versions" / "000001.json"
    values = {name: value for name, value in json.loads(manifest.read_text()).items() if name != "checksum"}
    manifest.write_text(json.dumps(values))
    with pytest.raises(CorruptFileError, match=r"000001\.json is not what was written: .* checksum is missing or differs"):
        open_dataset(str(tmp_path / "data"))
    manifest.write_text(json.dumps(values | {"manifest_version": 1}))
    assert list(open_dataset(str(tmp_path / "data")).episodes()) == EPISODES, "of the format that had none at first"


def table_of(shape: Callable[[int], pa.Array], rows: int = 3) -> pa.Table:
    return pa.table({"t": pa.array(range(rows)), "x": shape(rows)})


WRITES: dict[str, Callable[[pa.Table, str], Any]] = {
    "rows.parquet": pq.write_table,
    "rows.feather": pyarrow.feather.write_feather,
    "rows.arrow": partial(pyarrow.feather.write_feather, compression="uncompressed"),
    "lance": lance.write_dataset,
}
IMPORTS = [(name, shape) for name in WRITES for shape in SHAPES if (name, shape) != ("lance", in_map)]  # it has no maps


@pytest.mark.parametrize(("name", "shape"), IMPORTS)
def test_pickled_objects_in_an_import(tmp_path: Path, name: str, shape: Callable[[int], pa.Array]) -> None:
    WRITES[name](table_of(shape), str(tmp_path / name))
    [reader] = open_source([str(tmp_path / name)])
    with pytest.raises(UnsafeDataError, match=f"Column 'x' of .*{name}.*{REFUSED}"):
        [batch.to_pylist() for batch in reader.batches() if isinstance(batch, pa.Table)]
    held = FirstRows.of(reader)
    assert isinstance(held.error, UnsafeDataError) and not held.tables
    [reader] = open_source([str(tmp_path / name)], SourceConfig(columns=["t"]))
    assert [batch["t"].to_pylist() for batch in reader.batches() if isinstance(batch, pa.Table)] == [[0, 1, 2]]


def test_pickled_objects_in_many_small_files(tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(table_of(in_struct), tmp_path / f"{number}.parquet")
    readers = open_source([str(tmp_path)])
    assert list(small_files(readers, [100] * 3, range(3))) == [([0, 1, 2], None)], "read one by one, which tells"


def test_pickled_objects_in_the_files_of_a_delta_table(tmp_path: Path) -> None:
    """The schema in the table's log does not tell; Polars compares it with that of each file."""
    deltalake.write_deltalake(tmp_path / "delta", pa.table({"t": [0, 1, 2], "x": pa.array([PAYLOAD] * 3)}))
    [file], [log] = (tmp_path / "delta").glob("*.parquet"), (tmp_path / "delta" / "_delta_log").glob("*.json")
    size = file.stat().st_size
    pq.write_table(table_of(pickled), file)
    log.write_text(log.read_text().replace(f'"size":{size}', f'"size":{file.stat().st_size}'))
    [reader] = open_source([str(tmp_path / "delta")])
    with pytest.raises(CorruptFileError, match=r"mismatch for column x: .*ray\.data\.arrow_pickled_object"):
        list(reader.batches())


def test_pickled_objects_that_ray_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all of its functions refuse them."""

    class Rows:
        def iter_batches(self, **_: Any) -> Iterator[pa.Table]:
            yield table_of(in_map)

    monkeypatch.setattr(RayRead, "dataset", lambda self: Rows())
    with pytest.raises(UnsafeDataError, match=f"Column 'x' of orders {REFUSED}"):
        list(RayRead("read_delta", ("orders",)).batches())


def test_pickled_objects_that_a_reader_of_the_users_hands_on() -> None:
    class Reader:
        uri = "orders"

        def batches(self) -> Iterator[pa.Table]:
            yield table_of(in_struct)

    with pytest.raises(UnsafeDataError, match=f"Column 'x' of orders {REFUSED}"):
        list(CustomReader("orders:Reader", Reader()).batches())


def test_pickled_objects_among_scores(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", EPISODES)
    index = pl.DataFrame({columns.EPS_ID: ["a", "b", "c"], columns.T_STARTED: [0, 0, 0]})
    place = Location.of(str(tmp_path)).child("scores.parquet")
    write_scores(place, dataset, index, np.zeros(3), np.zeros(3, bool), ["", "", ""], [], np.zeros((3, 0)))
    table = pq.read_table(place.path)
    number = table.schema.get_field_index("reason")
    pq.write_table(table.set_column(number, "reason", pickled(3)).replace_schema_metadata(table.schema.metadata), place.path)
    with pytest.raises(UnsafeDataError, match=f"Column 'reason' of .*{REFUSED}"):
        scores_of(str(tmp_path), dataset)
    with pytest.raises(UnsafeDataError, match=f"Column 'reason' of .*{REFUSED}"):
        read_scores(place)


def test_pickled_objects_in_the_schema_of_an_import() -> None:
    schema = base64.b64encode(table_of(in_struct).schema.serialize()).decode()
    with pytest.raises(UnsafeDataError, match=REFUSED):
        Imported(arrow_schema=schema).row_schema  # noqa: B018


def plain(kind: pa.DataType, **metadata: str) -> pa.Schema:
    return pa.schema([pa.field("x", kind, metadata=metadata or None)])


@pytest.mark.parametrize(
    "schema",
    [
        plain(pa.dictionary(pa.int8(), ArrowPythonObjectType())),
        plain(pa.list_view(ArrowPythonObjectType())),
        plain(pa.large_list(pa.struct([("y", pa.list_(ArrowPythonObjectType(), 2))]))),
        plain(pa.map_(ArrowPythonObjectType(), pa.int8())),
        plain(pa.fixed_shape_tensor(ArrowPythonObjectType(), (2,))),
        plain(pa.opaque(pa.binary(), "object", "database")),
        plain(pa.large_binary(), **{"ARROW:extension:name": "ray.data.arrow_pickled_object"}),
        plain(pa.list_(pa.field("y", pa.binary(), metadata={"ARROW:extension:name": "of.another"}))),
    ],
)
def test_a_type_that_is_no_tensor_however_deep(schema: pa.Schema) -> None:
    with pytest.raises(UnsafeDataError, match="Column 'x' of here has the Arrow extension type"):
        refuse_extension_types(schema, "here")


@pytest.mark.parametrize(
    "kind",
    [
        pa.fixed_shape_tensor(pa.float32(), (2,)),
        pa.struct([("y", pa.fixed_shape_tensor(pa.float32(), (2,)))]),
        extensions.ArrowTensorType((2,), pa.float32()),
        extensions.ArrowTensorTypeV2((2,), pa.float32()),
        extensions.ArrowVariableShapedTensorType(pa.float32(), 2),
        pa.uuid(),
        pa.json_(),
        pa.bool8(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.map_(pa.string(), pa.list_(pa.int8())),
    ],
)
def test_tensors_and_plain_values(kind: pa.DataType) -> None:
    refuse_extension_types(plain(kind), "here")
