"""What code of the user's own raises, as an error of ours that says where."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from offline_core.errors import DataError, OfflineError


@contextlib.contextmanager
def own_errors(what: str, where: str, kind: type[OfflineError] = DataError) -> Iterator[None]:
    """Around a call of the user's own code: whatever it raises becomes a `kind`; errors of ours pass as they are.

    Arguments:
        what: it is called, such as "filter examples.filter:upright".
        where: it was when it failed, such as "on episode 7".
    """
    try:
        yield
    except (OfflineError, MemoryError):
        raise
    except Exception as error:  # somebody else's code raises what it likes
        raise kind(f"The {what} failed {where}: {error!r}. Mend it, or raise an error of ours there.") from error
