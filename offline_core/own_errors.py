"""What code of the user's own raises, as an error of ours that says where."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path

from offline_core.errors import DataError, OfflineError

_NOT_THEIRS = str(Path(__file__).parent)


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
        raise kind(
            f"The {what} failed {where}: {error!r} ({_line(error)}). Mend it, or raise an error of ours there."
        ) from error


def _line(error: Exception) -> str:
    """The last one that it passed that is neither ours nor a library's: the traceback does not come back from Ray."""
    passed = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in passed if not frame.filename.startswith(_NOT_THEIRS) and "site-packages" not in frame.filename]
    last = (theirs or passed)[-1]
    return f"{last.filename}, line {last.lineno}"
