"""A Delta table of a dataset version: `_delta_log` in its folder, one commit for each version that is published."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any

import pyarrow as pa

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.formats.published.schema import published_schema
from offline_core.data.store.location import Location
from offline_core.runtime.extras import require_extra

_APP = "offline"
"""Of the transaction identifiers in the log: its number is the version that was published last."""


def publish(dataset: Dataset) -> tuple[Location, bool]:
    """(the folder of the table, which shows the version from now on; whether it did not before).

    The log has no statistics of values.

    Raises:
        ConfigError: the extra `delta` is missing.
        SchemaError: a table cannot hold a column.
    """
    with require_extra("delta"):
        from deltalake import CommitProperties, DeltaTable, Schema, Transaction
        from deltalake.transaction import AddAction, create_table_with_add_actions
    uri, version = dataset.location.uri, dataset.manifest.version
    table = DeltaTable(uri) if DeltaTable.is_deltatable(uri) else None
    names = [urllib.parse.quote(file.path) for file in dataset.manifest.files]
    if table is not None and table.transaction_version(_APP) == version and {*_shown(table)} == {*names}:
        return dataset.location, False
    created = int(dataset.manifest.created_at.timestamp() * 1000)
    add = [
        AddAction(name, file.bytes, {}, created, True, json.dumps({"numRecords": file.rows}))
        for name, file in zip(names, dataset.manifest.files, strict=True)
    ]
    schema = Schema.from_arrow(published_schema(dataset))
    properties = CommitProperties(
        app_transactions=[Transaction(_APP, version)], custom_metadata={"offlineVersion": str(version)}
    )
    if table is None:
        create_table_with_add_actions(uri, schema, add, mode="error", commit_properties=properties)
    else:
        table.create_write_transaction([*add], mode="overwrite", schema=schema, commit_properties=properties)
    return dataset.location, True


def _shown(table: Any) -> list[str]:
    """The files of its last commit: those of a version change when episodes are forgotten."""
    return [urllib.parse.quote(path) for path in pa.table(table.get_add_actions())["path"].to_pylist()]
