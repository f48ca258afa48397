"""Puts the work pool and all deployments on the server, and leaves switches as they are: `python -m deployments.deploy`.

For containers, which do so at each start. `prefect deploy` alone switches schedules to what prefect.yaml says, and
`prefect work-pool create --overwrite` ends the pause of a pool and removes its limit.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import DeploymentFilter
from prefect.exceptions import ObjectNotFound

from deployments.definitions import PREFECT_FILE
from deployments.server import readable_errors

POOL = "offline"


def with_switches(document: dict[str, Any], are_on: Mapping[tuple[str, str], bool]) -> dict[str, Any]:
    """Return the document of prefect.yaml, with each schedule switched on or off as it is on the server.

    Arguments:
        are_on: by names of deployments and slugs of schedules; others are as the file says.
    """
    deployments = [
        {**deployment, "schedules": [_switched(deployment["name"], schedule, are_on) for schedule in deployment["schedules"]]}
        if "schedules" in deployment
        else deployment
        for deployment in document["deployments"]
    ]
    return {**document, "deployments": deployments}


def _switched(name: str, schedule: dict[str, Any], are_on: Mapping[tuple[str, str], bool]) -> dict[str, Any]:
    return {**schedule, "active": are_on.get((name, schedule["slug"]), schedule["active"])}


def switches(client: SyncPrefectClient, document: dict[str, Any]) -> dict[tuple[str, str], bool]:
    """Return whether each schedule on the server is switched on, by names of deployments and slugs of schedules."""
    names = [deployment["name"] for deployment in document["deployments"] if "schedules" in deployment]
    deployments = client.read_deployments(deployment_filter=DeploymentFilter.model_validate({"name": {"any_": names}}))
    return {
        (deployment.name, schedule.slug): schedule.active
        for deployment in deployments
        for schedule in deployment.schedules
        if schedule.slug
    }


def main() -> None:
    """Ends with Prefect's exit code."""
    document = yaml.safe_load(PREFECT_FILE.read_text())
    with readable_errors(), get_client(sync_client=True) as client:
        try:
            client.read_work_pool(POOL)
        except ObjectNotFound:
            _prefect("work-pool", "create", POOL, "--type", "process")
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(with_switches(document, switches(client, document)), file)
            file.flush()
            _prefect("--no-prompt", "deploy", "--all", "--prefect-file", file.name)


def _prefect(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "prefect", *arguments], check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
