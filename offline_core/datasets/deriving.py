"""A version of a dataset out of other datasets: found if it exists already, else written and committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from offline_core.datasets.commit import find_version
from offline_core.datasets.copying import commit_copy
from offline_core.datasets.dataset import Dataset
from offline_core.datasets.manifest import Operation
from offline_core.datasets.prepare import prepared
from offline_core.datasets.writer import WrittenFiles
from offline_core.storage.location import Location

log = logging.getLogger(__name__)

Write: TypeAlias = Callable[[Location], tuple[WrittenFiles, Mapping[str, Any]]]
"""Writes files below a dataset's folder and returns them with the report of the operation."""


def derive(
    output: str, operation: Operation, sources: Sequence[Dataset], write: Write, *, may_reuse: bool = True
) -> tuple[Dataset, bool]:
    """The version of `output` that an operation makes of its sources, and whether it existed before.

    If `write` fails, no version is committed, and folders created for it are removed again.

    Arguments:
        may_reuse: False if the operation does not say all that decides what is written.
    """
    if may_reuse and (found := find_version(output, operation, [source.parent_entry for source in sources])):
        return found, True
    with prepared(output) as root:
        written, report = write(root)
    made = commit_copy(output, written, sources, operation=operation, report=report)
    log.info("%s: %s", operation.name, made.ref)
    return made, False
