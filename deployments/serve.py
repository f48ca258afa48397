"""Offers the deployments of prefect.yaml from one process, without a work pool: `python -m deployments.serve`."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import Any

from prefect.client.schemas.objects import ConcurrencyLimitConfig
from prefect.deployments.runner import RunnerDeployment
from prefect.runner import Runner
from prefect.schedules import Schedule
from prefect.settings import get_current_settings

from deployments.definitions import PROFILES, definitions, flow_of, profile_of
from deployments.server import readable_errors
from flows.stopping import AT_ONCE, STOPS, end_at_once
from flows.ui import use_preferred_ui
from offline_core.runtime.provenance import provenance


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


def welcome(deployments: Sequence[str], ui_url: str | None) -> str:
    """What is served, and where its forms are; without an address where the server is not known to have a UI."""
    forms = "" if ui_url is None else f"Their forms: {ui_url}/deployments. Choose one, press Run, then Custom run.\n"
    return f"Serving {', '.join(deployments)}.\n{forms}Stop with Ctrl-C.\n"


async def serve(*deployments: RunnerDeployment) -> signal.Signals:
    """Serves until SIGINT or SIGTERM, which cancel the run at hand; a second one ends this process at once. Returns the first.

    One run at a time, for a run takes the whole machine. Prefect's own handler of SIGTERM leaves the run in state Running, and
    in its concurrency slot.
    """
    runner = Runner(limit=1)
    for deployment in deployments:
        await runner.aadd_deployment(deployment)
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    first: signal.Signals | None = None

    def stop(number: signal.Signals) -> None:
        nonlocal first
        if first is not None:
            end_at_once(128 + number, AT_ONCE.format(why="by a second signal"))
        first = number
        stopped.set()

    serving = asyncio.create_task(runner.start())
    while not runner.started and not serving.done():
        await asyncio.sleep(0.1)
    # Only now, for Prefect's runner has set a handler of its own.
    for number in STOPS:
        loop.add_signal_handler(number, stop, number)
    if runner.started:
        sys.stdout.write(welcome([deployment.full_name for deployment in deployments], get_current_settings().ui_url))
        sys.stdout.flush()
    stopping = asyncio.create_task(stopped.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if stopped.is_set():
        await runner.astop()
    await serving
    stopping.cancel()
    assert first is not None, "nothing else ends it without an error"
    return first


def main() -> None:
    """Serves until it is stopped; then ends with exit code 130 (SIGINT) or 143 (SIGTERM)."""
    parser = argparse.ArgumentParser(prog="python -m deployments.serve", description=__doc__)
    parser.add_argument(
        "--profile", action="append", choices=PROFILES, help="Repeat for more; default and short if none is given."
    )
    chosen = parser.parse_args().profile or ["default", "short"]
    with readable_errors():
        use_preferred_ui()
        first = asyncio.run(serve(*(served(deployment) for deployment in definitions() if profile_of(deployment) in chosen)))
    sys.stderr.write(f"Stopped by {first.name}. A run that was at work is cancelled: retry it, and it goes on where it was.\n")
    raise SystemExit(128 + first)


if __name__ == "__main__":
    main()
