"""Flow: make the home page of a root."""

import os

from prefect.settings import PREFECT_UI_URL

from flows.local_flow import flow
from offline_core.keeping.homepage.config import ReportConfig, ReportResult
from tasks.stages import publish_report as publish_report_task


@flow(name="publish-report")
def publish_report(
    root: str = "runs",
    output: str | None = None,
    config: ReportConfig = ReportConfig(),
) -> ReportResult:
    """Writes one HTML page of all that is below a folder: datasets and episodes, experiments, policies, lineage.

    Args:
        root: Folder with all that was made.
        output: HTML file to write; report.html in the root if none is given.
        config: How much of the episodes is in the page, and what it links.
    """
    if not config.runs_url and (ui := PREFECT_UI_URL.value() or os.environ.get("PREFECT_UI_URL")):
        config = config.model_copy(update={"runs_url": f"{ui.rstrip('/')}/runs"})
    return publish_report_task(config, root=root, output=output)
