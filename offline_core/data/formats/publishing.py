"""Publish a dataset as a table that Spark, DuckDB and Polars read by its name; the data files are the same."""

from __future__ import annotations

import contextlib
import logging
from typing import Literal

from pydantic import Field

from offline_core.data.datasets.dataset import DatasetRef, open_committed
from offline_core.data.datasets.tags import remove_tag, write_tag
from offline_core.data.formats.published import delta, iceberg
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, SchemaError, VersionNotFoundError
from offline_core.runtime.config import Config
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.result import Result
from offline_core.runtime.stage import DATASET, VERSION, stage
from offline_core.runtime.units import count_text

log = logging.getLogger(__name__)

TableFormat = Literal["delta", "iceberg"]
_TABLES = {"delta": delta, "iceberg": iceberg}
_TAG = "published-"
"""Prefix of the tag of the version that a table shows."""


class PublishConfig(Config):
    """As what a dataset is published."""

    format: TableFormat = Field(
        "delta",
        description="delta: a log in the dataset's folder. iceberg: metadata in its folder _iceberg, for the episode format.",
    )


class PublishResult(Result):
    """The table."""

    dataset: DatasetRef
    format: TableFormat
    table: str = Field(description="What readers name: the folder of the table.")

    def card(self) -> Card:
        delta = f"polars.scan_delta({self.table!r})"
        return Card(
            "Published table",
            verdict="good",
            word="Published",
            sentence=f"{count_text(self.dataset.episodes, 'episode')} as a table of {self.format.capitalize()}; "
            "nothing was copied.",
            facts={"Dataset": self.dataset, "Table": self.table},
            next=delta if self.format == "delta" else f"polars.scan_iceberg({self.table!r})",
            about=(self.dataset.uri, self.dataset.version),
        )


@stage(
    "publish",
    after="mix",
    arguments=(DATASET, VERSION),
    hint="Delta is the default; -s format=iceberg chooses Iceberg.",
    run_name="publish {dataset} as {config.format}",
)
def publish(config: PublishConfig, *, dataset: str, version: int | None = None) -> PublishResult:
    """Make a Delta or Iceberg table show a version by its own files, for Spark, DuckDB and Polars.

    Nothing is copied: it is the next commit of the table.

    The version gets the tag `published-<format>`, so that its files stay, as soon as the table shows it; until then, it has
    the tag `publishing-<format>-<version>`, and the version that the table shows keeps the other one. A version that is shown
    already is not committed again.

    Raises:
        ConfigError: the extra of the format is missing.
        SchemaError: the table cannot hold a column.
    """
    source = open_committed(dataset, version)
    version = source.manifest.version
    meanwhile = f"publishing-{config.format}-{version}"
    write_tag(source.location, meanwhile, version)  # first: what a table shows must not go
    try:
        folder, is_new = _TABLES[config.format].publish(source)
        write_tag(source.location, f"{_TAG}{config.format}", version)
    except (ConfigError, SchemaError):  # before anything is written; after other errors the table may show the version
        _remove(source.location, meanwhile)
        raise
    _remove(source.location, meanwhile)
    log.info("%s %s as %s", "Published" if is_new else "Is published already:", source.ref, config.format)
    return PublishResult(dataset=source.ref, format=config.format, table=folder.uri, reused=not is_new)


def _remove(location: Location, tag: str) -> None:
    with contextlib.suppress(VersionNotFoundError):  # another run that publishes the same was faster
        remove_tag(location, tag)
