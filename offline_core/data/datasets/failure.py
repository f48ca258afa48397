"""Why the last run of a stage failed, kept in its folder until the next one begins there."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import BaseModel, Field, ValidationError

from offline_core.control_characters import visible
from offline_core.data.datasets.manifest import Operation, Parent
from offline_core.data.store.json_files import with_checksum, without_checksum
from offline_core.data.store.location import Location
from offline_core.secrets import masked_text

log = logging.getLogger(__name__)

FAILURE_FILE = "failure.json"
MOST_LETTERS = 2_000


class Failure(BaseModel):
    """What ended a run. One that was killed leaves none."""

    error: str = Field(description="Class and message.")
    may_pass: bool = Field(description="The same call may succeed later, with nothing changed.")
    failed_at: datetime
    operation: Operation | None = Field(None, description="What it was to do; None: kept by an earlier version.")
    parents: list[Parent] = Field([], description="Of what.")

    @property
    def sentence(self) -> str:
        """The failure in a sentence for people."""
        return f"{self.error}{' It may pass if it is run again.' if self.may_pass else ''}"


def error_text(error: BaseException) -> str:
    """Class and message, without secrets and control characters; the end of a very long one is left out.

    Of an error of Ray's that carries one of another process, that one: the text of Ray's own begins with its traceback.
    """
    if isinstance(cause := getattr(error, "cause", None), BaseException):
        error = cause
    return visible(masked_text(f"{type(error).__name__}: {error}"))[:MOST_LETTERS]


def keep_failure(folder: Location, error: Exception, operation: Operation, parents: Sequence[Parent]) -> None:
    """Write why a run failed; a folder that cannot be written, or an error without a text, is no second error."""
    try:
        may_pass = getattr(error, "may_pass", False) is True
        failure = Failure(
            error=error_text(error),
            may_pass=may_pass,
            failed_at=datetime.now(UTC),
            operation=operation,
            parents=[*parents],
        )
        folder.child(FAILURE_FILE).write(with_checksum(failure.model_dump_json(indent=2)))
    except Exception as other:  # whatever the error's own text may raise
        log.info("%s does not say why its run failed: %s", folder.uri, other)


def forget_failure(folder: Location) -> None:
    """Delete what says why the last run failed, if it is there."""
    if (file := folder.child(FAILURE_FILE)).is_file():
        file.delete()


def read_failure(folder: Location) -> Failure | None:
    """Why the last run in a folder failed; None: it goes on, was killed, or succeeded.

    Raises:
        CorruptFileError: the file is damaged.
        StorageError: it cannot be read.
    """
    file = folder.child(FAILURE_FILE)
    try:
        return Failure.model_validate_json(without_checksum(file.read(), file.uri)) if file.is_file() else None
    except ValidationError:  # another program's
        return None
