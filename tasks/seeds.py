"""Seeds of runs that are to differ from each other, and not from their own retries."""

from __future__ import annotations

from prefect.runtime import flow_run


def seed_of(seed: int | None) -> int:
    """The seed itself, or if there is none the second for which the running flow was scheduled, counted from 1970.

    A run that is retried has the seed it had, so that what it had made is found; the next night's has another.
    """
    return int(flow_run.scheduled_start_time.timestamp()) if seed is None else seed
