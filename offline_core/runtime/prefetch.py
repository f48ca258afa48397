"""Work that threads do: the next item of an iterator meanwhile, and many small requests at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

AT_A_TIME = 8
"""Files that are read in parallel: one after the other, remote ones take long."""

Item = TypeVar("Item")
Made = TypeVar("Made")


class Prefetched(Iterator[Item]):
    """The items of an iterator; a thread makes the next one while the last is used.

    Who leaves it before its last item calls `close`, which waits for the thread. If it is dropped, nothing waits: the garbage
    collector may be what drops it, and may run while a thread starts, which holds a lock that waiting for a thread needs.
    """

    def __init__(self, items: Iterator[Item]) -> None:
        self._items = items
        self._maker = ThreadPoolExecutor(1)
        self._following: Future[Item | None] | None = self._maker.submit(next, items, None)

    def __next__(self) -> Item:
        following, self._following = self._following, None
        try:
            if following is None or (item := following.result()) is None:
                self._maker.shutdown(wait=False)
                raise StopIteration
            self._following = self._maker.submit(next, self._items, None)
            return item
        finally:
            del following  # its error holds this frame, by its traceback

    def close(self) -> None:
        """End it; the item that the thread makes is awaited and dropped."""
        self._following = None
        self._maker.shutdown()

    def __del__(self) -> None:
        self._maker.shutdown(wait=False)


def several(work: Callable[[Item], Made], items: Iterable[Item]) -> list[Made]:
    """What `work` returns of each item, in their order, `AT_A_TIME` at a time; the first error is raised."""
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return [*pool.map(work, items)]
