"""What becomes of data in the long run, and a page to look at all of it, as users call it.

offline.tag("runs/data", "audited")                        # runs/data@audited is this version from now on
offline.vacuum("runs", keep_versions=3, delete=True)
offline.forget("runs", "subject = 'p-17'", delete=True)
offline.publish("runs/data", format="delta")               # a table for Spark, DuckDB and Polars, of the same files
offline.report("runs")                                     # runs/report.html
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from offline_core.arguments import Data, Given, Path, config_of, place_of
from offline_core.data.datasets.dataset import DatasetRef

if TYPE_CHECKING:
    from offline_core.data.formats.publishing import PublishConfig, PublishResult
    from offline_core.keeping.homepage.config import ReportConfig, ReportResult
    from offline_core.keeping.retention.config import ForgetConfig, VacuumConfig
    from offline_core.keeping.retention.forget import ForgetResult
    from offline_core.keeping.retention.vacuum import VacuumResult


def tag(data: Data, name: str, /, *, version: int | None = None, remove: bool = False) -> DatasetRef:
    """Let a name stand for a version of a dataset, the latest by default: `runs/data@name` is read as that version.

    A name that stands for another version is moved. Tagged versions stay when `vacuum` deletes old ones.

    Arguments:
        remove: remove the tag; the version stays.

    Raises:
        ConfigError: the name is none.
        VersionNotFoundError: there is no such version, or no such tag to remove.
        DatasetNotFoundError: there is no dataset.
    """
    from offline_core.data.datasets.dataset import open_committed
    from offline_core.data.datasets.tags import remove_tag, resolve, write_tag

    uri, known = place_of(data)
    opened = open_committed(uri, known if version is None else version)
    if remove:
        opened = open_committed(uri, resolve(opened.location, name))
        remove_tag(opened.location, name)
    else:
        write_tag(opened.location, name, opened.manifest.version)
    return opened.ref


def vacuum(root: Path, /, *, config: Given[VacuumConfig] = None, **parameters: Any) -> VacuumResult:
    """List, or with `delete=True` delete, old versions of the datasets at or below a root, and files that belong to none.

    Arguments:
        parameters: fields of `VacuumConfig`.

    Raises:
        DatasetNotFoundError: there is no dataset.
        CorruptFileError, CheckpointError: a manifest cannot be read; nothing is deleted.
    """
    from offline_core.keeping.retention.config import VacuumConfig
    from offline_core.keeping.retention.vacuum import vacuum

    return vacuum(config_of(VacuumConfig, config, parameters), root=os.fspath(root))


def forget(root: Path, where: str | None = None, /, *, config: Given[ForgetConfig] = None, **parameters: Any) -> ForgetResult:
    """Say, or with `delete=True` do it, which episodes are taken out of all versions of all datasets at or below a root.

    Arguments:
        where: SQL, such as "subject = 'p-17'".
        parameters: fields of `ForgetConfig`.

    Raises:
        ConfigError: the condition cannot be understood, or no dataset has its columns.
        DatasetNotFoundError: there is no dataset.
    """
    from offline_core.keeping.retention.config import ForgetConfig
    from offline_core.keeping.retention.forget import forget

    chosen = parameters if where is None else {**parameters, "where": where}
    return forget(config_of(ForgetConfig, config, chosen), root=os.fspath(root))


def publish(data: Data, /, *, config: Given[PublishConfig] = None, **parameters: Any) -> PublishResult:
    """Make a table of Delta or Iceberg show a version of a dataset, with the same files.

    Arguments:
        parameters: fields of `PublishConfig`.

    Raises:
        ConfigError: the extra of the format is missing.
        SchemaError: the table cannot hold a column.
    """
    from offline_core.data.formats.publishing import PublishConfig, publish_dataset

    parsed, (uri, version) = config_of(PublishConfig, config, parameters), place_of(data)
    return publish_dataset(parsed, dataset=uri, version=version)


def report(root: Path, /, *, output: Path | None = None, config: Given[ReportConfig] = None, **parameters: Any) -> ReportResult:
    """Make one HTML page of all that is below a root: datasets and episodes, experiments, policies, decisions, lineage.

    Arguments:
        output: the HTML file; None: `report.html` in the root.
        parameters: fields of `ReportConfig`.

    Raises:
        StorageError: the root cannot be listed, or the file cannot be written.
    """
    from offline_core.keeping.homepage.config import ReportConfig
    from offline_core.keeping.homepage.report import report

    file = None if output is None else os.fspath(output)
    return report(config_of(ReportConfig, config, parameters), root=os.fspath(root), output=file)
