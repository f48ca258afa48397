"""Prefetching of an iterator by one thread."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def prefetched(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items; a thread makes the next one while the last is used. Closing waits for that item."""
    with ThreadPoolExecutor(1) as maker:
        following = maker.submit(next, items, None)
        try:
            while (item := following.result()) is not None:
                following = maker.submit(next, items, None)
                yield item
        finally:
            del following  # its error holds this frame, by its traceback
