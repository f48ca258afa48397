"""Work that goes on while its last result is used."""

from __future__ import annotations

import gc
import queue
import threading
import weakref
from collections.abc import Iterator

import pytest

from offline_core.runtime.prefetch import Prefetched
from tests.waiting import PATIENCE_SECONDS


def test_all_come_in_order_and_the_next_one_is_made_meanwhile() -> None:
    made = [threading.Event() for _ in range(5)]

    def making() -> Iterator[int]:
        for number in range(5):
            made[number].set()
            yield number

    for number, item in enumerate(Prefetched(making())):
        assert item == number
        assert number == 4 or made[number + 1].wait(PATIENCE_SECONDS)
        assert number >= 3 or not made[number + 2].is_set()


def test_an_end_before_the_last_item_waits_for_no_thread() -> None:
    """The garbage collector may be what ends it, while a lock is held that waiting would need."""
    is_released, was_released = threading.Event(), queue.SimpleQueue[bool]()

    def making() -> Iterator[int]:
        yield 1
        was_released.put(is_released.wait(PATIENCE_SECONDS))
        yield 2

    items = Prefetched(making())
    assert next(items) == 1
    del items
    is_released.set()
    assert was_released.get(timeout=PATIENCE_SECONDS)


def test_who_closes_it_waits_for_the_item_that_is_made() -> None:
    is_begun, is_released, is_done = threading.Event(), threading.Event(), threading.Event()

    def making() -> Iterator[int]:
        yield 1
        is_begun.set()
        is_released.wait(PATIENCE_SECONDS)
        is_done.set()
        yield 2

    items = Prefetched(making())
    assert next(items) == 1
    assert is_begun.wait(PATIENCE_SECONDS)
    closing = threading.Thread(target=items.close)
    closing.start()
    is_released.set()
    closing.join(PATIENCE_SECONDS)
    assert is_done.is_set() and not closing.is_alive()
    assert list(items) == []


def test_nothing_is_left_for_the_garbage_collector_by_an_error() -> None:
    """It may come at any time and in any thread, and ends what such an error's traceback holds."""

    class Held:
        pass

    held: list[weakref.ref[Held]] = []

    def making() -> Iterator[int]:
        mine = Held()
        held.append(weakref.ref(mine))
        yield 1
        raise LookupError("no more")

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(LookupError, match="no more") as raised:
            list(Prefetched(making()))
        assert held[0]() is not None
        del raised
        assert held[0]() is None
    finally:
        gc.enable()
