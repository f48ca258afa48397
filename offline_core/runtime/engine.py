"""Map a function over items, in this process or by tasks of Ray Data."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

from offline_core.errors import OfflineError

Engine = Literal["local", "ray"]
"""local: this process. ray: all CPUs of the running Ray."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_items(engine: Engine, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yield the results of `function` in the order of the items.

    Raises:
        OfflineError: as `function` raised it, also in another process.
    """
    if engine == "local":
        yield from map(function, items)
        return
    import ray.data

    def tried(row: dict[str, int]) -> dict[str, Any]:  # Ray wraps what a task raises, not what it returns
        try:
            return {"number": row["item"], "result": [function(items[row["item"]])]}
        except OfflineError as error:
            return {"number": row["item"], "result": [error]}

    numbers = ray.data.from_items(list(range(len(items))), override_num_blocks=len(items))
    results: dict[int, Result] = {}
    wanted = 0
    for row in numbers.map(tried).iter_rows():
        [result] = row["result"]
        if isinstance(result, OfflineError):
            raise result
        results[row["number"]] = result
        while wanted in results:
            yield results.pop(wanted)
            wanted += 1


@contextlib.contextmanager
def ray_errors() -> Iterator[None]:
    """Unwrap errors of this package from Ray's."""
    try:
        yield
    except Exception as error:
        cause = getattr(error, "cause", None) if is_rays(error) else None
        if not isinstance(cause, OfflineError):
            raise
        message, _, _ = str(cause).partition("\nFailed to ")  # Ray Data appends advice on retries
        cause.args = (message,)  # the error itself: it keeps its uri, episode, column and step
        raise cause from None


def is_rays(error: Exception) -> bool:
    """Whether Ray raises it for an error of a task."""
    return "ray" in sys.modules and isinstance(error, sys.modules["ray"].exceptions.RayTaskError)
