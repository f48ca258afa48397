"""Offers the deployments of prefect.yaml from one process, without a work pool: `python -m deployments.serve`."""

from __future__ import annotations

import argparse
from typing import Any

from prefect import serve
from prefect.client.schemas.objects import ConcurrencyLimitConfig
from prefect.deployments.runner import RunnerDeployment
from prefect.schedules import Schedule

from deployments.definitions import PROFILES, definitions, flow_of
from deployments.server import readable_errors
from flows.ui import use_preferred_ui
from offline_core.provenance import provenance


def served(definition: dict[str, Any]) -> RunnerDeployment:
    """A deployment of prefect.yaml for a process that serves it; its work pool, and so its environment, is not used."""
    limit = definition.get("concurrency_limit")
    return flow_of(definition["entrypoint"]).to_deployment(  # type: ignore[return-value]
        name=definition["name"],
        version=provenance().get("git"),
        tags=definition["tags"],
        parameters=definition.get("parameters"),
        schedules=[Schedule(**schedule) for schedule in definition.get("schedules", ())],
        concurrency_limit=ConcurrencyLimitConfig(**limit) if limit else None,
    )


def main() -> None:
    """Serves until it is interrupted; one run at a time, for a run takes the whole machine."""
    parser = argparse.ArgumentParser(prog="python -m deployments.serve", description=__doc__)
    parser.add_argument("--profile", action="append", choices=PROFILES, help="Repeat for more; default if none is given.")
    chosen = parser.parse_args().profile or ["default"]
    with readable_errors():
        use_preferred_ui()
        serve(*(served(each) for each in definitions() if each["name"] in chosen), limit=1)


if __name__ == "__main__":
    main()
