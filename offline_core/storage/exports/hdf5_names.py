"""Names that arrays and groups can have in an HDF5 file, where `/` leads into a group."""

from __future__ import annotations

from collections.abc import Iterable

from offline_core.errors import EpisodeError


def check_names(names: Iterable[object], what: str) -> None:
    """Names that come from episodes.

    Raises:
        EpisodeError: one is not text, or names another place in the file.
    """
    if strange := [name for name in names if not isinstance(name, str) or name in ("", ".") or {"/", "\0"} & set(name)]:
        raise EpisodeError(f"The {what} have the keys {strange}: names in HDF5 are text without /. Rename them.")
