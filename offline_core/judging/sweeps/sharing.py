"""Data that several runs of a sweep learn from: read once, and shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from offline_core.data.datasets.manifest import digest
from offline_core.errors import OfflineError
from offline_core.learning.run import Run, loaded_columns

_OF_RUNS = {"rewards", "prelearners", "resident_bytes", "prefetch", "row_groups_per_read"}
"""Parameters of the data that runs which share it may differ in."""


class SharedColumns:
    """The columns of the runs that wait, by what they read; each is read when the first run asks for it, in this process.

    Only what stays in memory and several runs need is shared, and only with our algorithms, which do not write to it.
    Memory: one copy for each set of columns until the last run has asked; in Ray's object store one for all processes of a
    machine.

    Arguments:
        in_store: give references to Ray's object store.
    """

    def __init__(self, waiting: Iterable[Run], *, in_store: bool) -> None:
        self._left = Counter(key for run in waiting if (key := _key(run)))
        self._found: dict[str, Any] = {}
        self._in_store = in_store

    def take(self, run: Run) -> Any:
        """Return the columns of a waiting run, or a reference to them; None: it reads by itself."""
        key = _key(run)
        if key is None or (self._left[key] < 2 and key not in self._found):
            return None
        if key not in self._found:
            self._found[key] = self._read(run)
        self._left[key] -= 1
        return self._found[key] if self._left[key] else self._found.pop(key)

    def _read(self, run: Run) -> Any:
        try:
            columns = loaded_columns(run)
        except OfflineError:  # each run says so by itself
            return None
        if not self._in_store:
            return columns
        import ray

        return ray.put(columns)


def is_shared(run: Run) -> bool:
    """Whether the data of such a run can be shared."""
    return _key(run) is not None


def _key(run: Run) -> str | None:
    """Identify what a run reads; None: it is not to be shared."""
    learns_alone = run.config.compute.learners == 0 and not run.config.data.prelearners
    if run.streamed or run.source.is_own or not learns_alone or not isinstance(run.config.algorithm, str):
        return None
    algorithm = run.algorithm()
    data = run.config.data.model_dump(mode="json", exclude=_OF_RUNS)
    return digest([algorithm.stored, algorithm.batch_columns, algorithm.needs_next_obs, data])
