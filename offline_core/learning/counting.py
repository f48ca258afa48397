"""What comes of reading a source once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from offline_core.errors import EmptyDatasetError
from offline_core.learning.source import Source, parts_of
from offline_core.prelearner.layout import IS_STEP, STARTS
from offline_core.progress import progress

if TYPE_CHECKING:
    from offline_core.learning.algorithms.algorithm import Algorithm


class Counts(NamedTuple):
    """What comes out of a source."""

    episodes: int
    steps: int


def count(source: Source, algorithm: Algorithm) -> Counts:
    """Reads all of it once.

    Raises:
        EmptyDatasetError: there is nothing in it.
        DataError: it cannot be read.
    """
    episodes = steps = 0
    with source.reading(), progress(source.origin.ref.steps or None, what="count", unit="step") as bar:
        for part in parts_of(source, algorithm):
            episodes += int(part[STARTS].sum())
            steps += int(part[IS_STEP].sum())
            bar.to(steps)
    if not steps:
        raise EmptyDatasetError(f"{source.origin.ref.uri} holds no steps to learn from.")
    return Counts(episodes, steps)
