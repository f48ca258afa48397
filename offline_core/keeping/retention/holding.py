"""Hold datasets below a root alone, so that no run writes versions of them."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterable

from offline_core.data.datasets.dataset import VERSIONS
from offline_core.data.store.holds import alone
from offline_core.data.store.stores import WRITER
from offline_core.errors import BusyError
from offline_core.keeping.retention.catalog import Catalog


def hold(held: contextlib.ExitStack, catalog: Catalog, names: Iterable[str]) -> set[str]:
    """Hold datasets until `held` ends, and return the names of those that other runs are writing."""
    busy = set()
    for name in sorted(names):  # in one order, so that of two runs one gets them all
        try:
            held.enter_context(alone(catalog.place(name).child(VERSIONS)))
        except BusyError:
            busy.add(name)
    return busy


def all_datasets(catalog: Catalog) -> set[str]:
    """Names of all datasets, also of those whose first version is being written."""
    folders = {posixpath.dirname(file) for file in catalog.sizes if posixpath.basename(file).startswith(WRITER)}
    begun = {posixpath.dirname(folder) for folder in folders if posixpath.basename(folder) == VERSIONS}
    return {*catalog.datasets, *begun}
