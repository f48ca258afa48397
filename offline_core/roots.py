"""`offline.list`: what is below a root. In a module of its own, for it has the name of a type of Python."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from offline_core.door import Path

if TYPE_CHECKING:
    from offline_core.keeping.homepage.listing import RootListing


def list(root: Path, /, *, kind: str | None = None) -> RootListing:
    """List the datasets, policies and results at a root and below, the newest last, as `offline ls` does; no data is read.

    `print(offline.list("runs"))` is the table; its entries have `kind`, `name`, `made`, `what`, `source`, `tags` and `policy`.

    Arguments:
        kind: only those of this kind: dataset, policy, training, sweep, decision, …

    Raises:
        ConfigError: there is no such kind.
        StorageError: the root cannot be listed.
    """
    from offline_core.keeping.homepage.listing import list_root

    return list_root(os.fspath(root), kind=kind)
