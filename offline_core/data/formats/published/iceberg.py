"""An Iceberg table of a dataset version: `_iceberg` in its folder, one snapshot for each version that is published.

Its catalogue exists only while it is written: readers name the metadata file, or the folder. The files of any table are
named by its own metadata, out of which pyiceberg would take settings, too: modules to import, servers to ask. So it is looked
at before it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.manifest import FileEntry
from offline_core.data.formats.published.schema import published_schema
from offline_core.data.store.location import Location
from offline_core.errors import SchemaError, UnsafeDataError
from offline_core.runtime.extras import require_extra

if TYPE_CHECKING:
    from pyiceberg.table import StaticTable

_METADATA = re.compile(r"(\d{5})-[0-9a-f-]{36}\.metadata\.json")
_FOLDER = "_iceberg"
_TABLE = "offline.data"
_VERSION = "offline.version"
_FINGERPRINT = "offline.fingerprint"
"""Of the version that is shown: it changes when episodes are forgotten."""
_OF_JAVA = {"io-impl", "catalog-impl", "lock-impl", "write.location-provider.impl"}
"""Classes that only Java loads."""
_WHERE = ("s3.", "gcs.", "adls.", "oss.", "hdfs.", "hf.", "client.", "rest.")
"""Settings of stores and servers begin so."""


def latest_metadata(table: Location) -> Location | None:
    """The newest metadata file of a table's folder; None: there is no table."""
    folder = table.child("metadata")
    names = sorted(name for name in folder.files(recursive=False) if _METADATA.fullmatch(name))
    return folder.child(names[-1]) if names else None


def open_table(metadata: Location, properties: Mapping[str, Any] = {}) -> StaticTable:
    """Open the table of a metadata file. The properties in that file do not decide how files are opened.

    Arguments:
        properties: settings of pyiceberg, from the caller.

    Raises:
        UnsafeDataError: the properties in the file name code, or addresses for requests.
    """
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.io import load_file_io
    from pyiceberg.serializers import FromInputFile
    from pyiceberg.table import StaticTable

    uri, name = metadata.uri, "static-table"
    io = load_file_io(dict(properties), location=uri)
    table_metadata = FromInputFile.table_metadata(io.new_input(uri))
    for key in table_metadata.properties:
        if (key.endswith("impl") and key not in _OF_JAVA) or key.startswith(_WHERE):
            raise UnsafeDataError(
                f"{uri} sets {key!r}, by which a reader would run code or send requests elsewhere. If you trust the table, "
                "remove that property from it, and give settings of the store by variables.",
                uri=uri,
            )
    return StaticTable((name, uri), table_metadata, uri, io, NoopCatalog(name))


def check_files(table: StaticTable, snapshot_id: int | None) -> None:
    """Check all files of a snapshot, the newest by default, against `OFFLINE_ROOTS`.

    Raises:
        LocationError: one is outside of it.
    """
    for uri in _files(table, snapshot_id):
        Location.of(uri).check_allowed()
        if uri.startswith("file:"):  # some readers take %2e for a dot, others for itself
            Location.on_disk(uri.removeprefix("file:").removeprefix("//")).check_allowed()


def _files(table: StaticTable, snapshot_id: int | None) -> Iterator[str]:
    snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return
    yield snapshot.manifest_list
    for manifest in snapshot.manifests(table.io):
        yield manifest.manifest_path
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
            yield entry.data_file.file_path


def publish(dataset: Dataset) -> tuple[Location, bool]:
    """(the folder of the table, which shows the version from now on; whether it did not before).

    Raises:
        ConfigError: the extra `iceberg` is missing.
        SchemaError: a table cannot hold a column.
    """
    with require_extra("iceberg"):
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.table import TableProperties
    folder = dataset.location.child(_FOLDER)
    version = str(dataset.manifest.version)
    catalog = SqlCatalog("offline", uri="sqlite:///:memory:", warehouse=folder.uri)
    catalog.create_namespace("offline")
    if (known := latest_metadata(folder)) is not None:
        open_table(known)  # refuses one that names code
    schema = published_schema(dataset)
    _refuse_tensors(dataset)
    table = (
        catalog.create_table(_TABLE, schema, location=folder.uri)
        if known is None
        else catalog.register_table(_TABLE, known.uri)
    )
    fingerprint = dataset.manifest.fingerprint
    if table.properties.get(_FINGERPRINT) == fingerprint:
        return folder, False
    with table.transaction() as transaction:
        if known is not None:
            with transaction.update_schema() as update:
                update.union_by_name(schema)
            transaction.delete(AlwaysTrue(), {_VERSION: version})
        # The files have no ids of fields, and so are read by the names of their columns.
        names = transaction.table_metadata.schema().name_mapping
        transaction.set_properties({_FINGERPRINT: fingerprint, TableProperties.DEFAULT_NAME_MAPPING: names.model_dump_json()})
        with transaction.update_snapshot({_VERSION: version}).fast_append() as append:
            for file in dataset.manifest.files:
                append.append_data_file(_data_file(dataset.location.child(file.path).uri, file))
    _write_hint(folder, catalog.load_table(_TABLE))
    return folder, True


def _refuse_tensors(dataset: Dataset) -> None:
    """Neither Polars nor pyiceberg reads a file with tensors as a part of an Iceberg table."""
    for field in dataset.schema:
        if isinstance(field.type, pa.BaseExtensionType):
            raise SchemaError(
                f"Column {field.name} of {dataset.ref} holds {field.type}, which readers of Iceberg do not know. Publish it as "
                f"delta, or convert it to episodes first: offline convert {dataset.location.uri}."
            )


def _data_file(uri: str, file: FileEntry) -> Any:
    """A file as Iceberg names it, without bounds of its values: pyiceberg's own `add_files` knows no tensors."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=uri,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=file.rows,
        file_size_in_bytes=file.bytes,
    )


def _write_hint(folder: Location, table: Any) -> None:
    """The name of the newest metadata, for readers that are given the folder."""
    name = table.metadata_location.rpartition("/")[2].removesuffix(".metadata.json")
    folder.child("metadata/version-hint.text").write(name.encode())
