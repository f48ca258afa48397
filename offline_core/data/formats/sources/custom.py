"""Wrap the user's readers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from offline_core.data.episodes.extension_types import refuse_extension_types
from offline_core.data.formats.sources.access_errors import raise_if_out_of_reach
from offline_core.data.formats.sources.step_reader import StepReader, Unreadable
from offline_core.errors import CorruptFileError, OfflineError


@dataclass(frozen=True)
class CustomReader:
    """A user's reader, whose errors name it and its source."""

    name: str
    """As `package.module:Reader`."""
    reader: StepReader

    @property
    def uri(self) -> str:
        return self.reader.uri

    def batches(self) -> Iterator[pa.Table | Unreadable]:
        """See `StepReader`."""
        try:
            for batch in self.reader.batches():
                if isinstance(batch, pa.Table):
                    refuse_extension_types(batch.schema, self.uri)
                yield batch
        except (OfflineError, MemoryError):
            raise
        except Exception as error:
            raise_if_out_of_reach(error, self.uri)
            raise CorruptFileError(
                f"The reader {self.name} cannot read {self.uri}: {error!r}. Fix the reader, or raise an OfflineError there."
            ) from error
