"""The files of an Iceberg table, which its own metadata names: looked at before they are read.

pyiceberg would take settings out of that metadata: modules to import, servers to ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from offline_core.data.store.location import Location
from offline_core.errors import UnsafeDataError

if TYPE_CHECKING:
    from pyiceberg.table import StaticTable

_OF_JAVA = {"io-impl", "catalog-impl", "lock-impl", "write.location-provider.impl"}
"""Classes that only Java loads."""
_WHERE = ("s3.", "gcs.", "adls.", "oss.", "hdfs.", "hf.", "client.", "rest.")
"""Settings of stores and servers begin so."""


def open_table(metadata: Location, properties: Mapping[str, Any] = {}) -> StaticTable:
    """The table of a metadata file; of that file's own properties none decides how files are opened.

    Arguments:
        properties: of pyiceberg's, from the caller.

    Raises:
        UnsafeDataError: the properties name code, or say where requests go.
    """
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.io import load_file_io
    from pyiceberg.serializers import FromInputFile
    from pyiceberg.table import StaticTable

    uri, name = metadata.uri, "static-table"
    io = load_file_io(dict(properties), location=uri)
    found = FromInputFile.table_metadata(io.new_input(uri))
    for each in found.properties:
        if (each.endswith("impl") and each not in _OF_JAVA) or each.startswith(_WHERE):
            raise UnsafeDataError(
                f"{uri} sets {each!r}, by which a reader would run code or send requests elsewhere. If you trust the table, "
                "remove that property from it, and give settings of the store by variables.",
                uri=uri,
            )
    return StaticTable((name, uri), found, uri, io, NoopCatalog(name))


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
