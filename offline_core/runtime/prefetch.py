"""Work that threads do: the next item of an iterator meanwhile, and many small requests at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

AT_A_TIME = 8
"""Files that are read in parallel: one after the other, remote ones take long."""

Item = TypeVar("Item")
Made = TypeVar("Made")


def prefetched(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items; a thread makes the next one while the last is used.

    It ends without waiting for that thread. The garbage collector may be what ends it, and may run while a thread starts, which
    holds a lock that waiting for a thread needs.
    """
    maker = ThreadPoolExecutor(1)
    following = maker.submit(next, items, None)
    try:
        while (item := following.result()) is not None:
            following = maker.submit(next, items, None)
            yield item
    finally:
        del following  # its error holds this frame, by its traceback
        maker.shutdown(wait=False)


def several(work: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """What `work` returns of each item, in their order, `AT_A_TIME` at a time; the first error is raised."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return [*pool.map(work, items)]
