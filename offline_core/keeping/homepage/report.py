"""Make the home page of a root."""

from __future__ import annotations

import logging
import time

from offline_core.data.datasets.catalogue import open_catalogue
from offline_core.data.store.location import Location
from offline_core.keeping.homepage.config import ReportConfig, ReportResult
from offline_core.keeping.homepage.page import page_of, title_of
from offline_core.keeping.homepage.site import Site
from offline_core.runtime.garbage import collection_paused
from offline_core.runtime.stage import Argument, stage

log = logging.getLogger(__name__)

REPORT_FILE = "report.html"


@stage(
    "report",
    after="vacuum",
    arguments=(
        Argument("root", "Folder with all that was made.", "runs"),
        Argument("output", "HTML file to write; report.html in the root if none is given.", kind="output", is_option=True),
    ),
)
def report(config: ReportConfig, *, root: str, output: str | None = None) -> ReportResult:
    """Make one HTML page of a root: datasets and their episodes, experiments, policies, decisions, lineage.

    A file that cannot be read is named on the page and in the result; the rest is shown.

    Arguments:
        root: URI of a folder.
        output: URI of the file; None: `report.html` in the root.

    Raises:
        StorageError: the root cannot be listed, or the file cannot be written.
    """
    start = time.perf_counter()
    with collection_paused():  # what thousands of files say is a million objects, none of them garbage
        site = Site(open_catalogue(root), config)
        values = site.for_file()
    contents = site.contents
    location = contents.catalogue.location(REPORT_FILE) if output is None else Location.of(output)
    problems = values["overview"]["problems"]
    page = page_of(title_of(contents.root.uri), values, made=site.made).encode()
    location.write(page)
    result = ReportResult(
        uri=location.uri,
        root=contents.root.uri,
        datasets=len(site.datasets),
        versions=sum(map(len, contents.datasets.values())),
        policies=len(site.policies),
        runs=len(site.runs),
        episodes=sum(len(table["id"]) for table in values["episodes"].values() if table),
        episodes_with_steps=sum("values" in steps for shown in values["episode"].values() for steps in shown.values()),
        problems=[f"{name}: {reason}" for name, reason in problems],
        bytes=len(page),
        seconds=time.perf_counter() - start,
    )
    log.info("%s: %d datasets, %d runs, %d bytes", result.uri, result.datasets, result.runs, result.bytes)
    return result
