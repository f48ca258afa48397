"""Make the home page of a root."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from urllib.parse import urlsplit

from offline_core.data.store.location import Location
from offline_core.keeping.contents import read_contents
from offline_core.keeping.homepage.config import ReportConfig, ReportResult
from offline_core.keeping.homepage.datasets import datasets_of
from offline_core.keeping.homepage.graph import graph_of
from offline_core.keeping.homepage.page import page_of
from offline_core.keeping.homepage.policies import decisions_of, policies_of, registry_of
from offline_core.keeping.homepage.runs import runs_of
from offline_core.keeping.homepage.values import minute
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
        found = read_contents(root)
        runs, policies, graph = runs_of(found), policies_of(found), graph_of(found)
        decisions, registry = decisions_of(found), registry_of(found)
    place = found.catalogue.place(REPORT_FILE) if output is None else Location.of(output)
    datasets = datasets_of(found, config)
    found.problems.sort()  # threads find them in any order
    explored = [each["episodes"] for each in datasets if each["episodes"]]
    page = page_of(
        f"{found.root.uri.rpartition('/')[2] or found.root.uri} · report",
        {
            "root": found.root.uri,
            "made": minute(datetime.now(UTC)),
            "runs_url": _without_credentials(config.runs_url.rstrip("/")),
            "datasets": datasets,
            "runs": runs,
            "policies": policies,
            "decisions": decisions,
            "registry": registry,
            "graph": graph,
            "problems": found.problems,
        },
    ).encode()
    place.write(page)
    result = ReportResult(
        uri=place.uri,
        root=found.root.uri,
        datasets=len(datasets),
        versions=sum(map(len, found.datasets.values())),
        policies=len(policies),
        runs=len(runs.get("name", [])),
        episodes=sum(len(each["id"]) for each in explored),
        episodes_with_steps=sum(len(each["steps"]) for each in explored),
        problems=[f"{name}: {reason}" for name, reason in found.problems],
        bytes=len(page),
        seconds=time.perf_counter() - start,
    )
    log.info("%s: %d datasets, %d runs, %d bytes", result.uri, result.datasets, result.runs, result.bytes)
    return result


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
