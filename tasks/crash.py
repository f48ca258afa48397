"""A run whose Ray has died is a crash: Prefect marks as Crashed what ends with anything but an Exception."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from offline_core.errors import RayLostError


class Crash(BaseException):
    """What a stage runs on has died."""


@contextlib.contextmanager
def crashing() -> Iterator[None]:
    """A lost Ray inside is a `Crash`; also for a flow's `ray_scope`, for Ray may die between two stages."""
    try:
        yield
    except RayLostError as error:
        raise Crash(str(error)) from None
