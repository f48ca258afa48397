"""The formats that are read: what `@reader(name, suffixes, …)` says of a class is all that there is to know of one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

import pyarrow as pa

from offline_core.data.datasets.about import About
from offline_core.data.formats.sources.access_errors import raise_if_out_of_reach
from offline_core.data.formats.sources.expansion import MAX_EXPANSION
from offline_core.data.formats.sources.listing import Listing
from offline_core.data.formats.sources.partitions import Values, with_values
from offline_core.data.formats.sources.step_reader import Unreadable
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, CorruptFileError, OfflineError, SchemaError, SpaceError, first_line
from offline_core.secrets import masked_text

BATCH_BYTES = 32 * 2**20
"""Aim for a batch."""
SOURCE_ROW = "_source_row"
"""An additional column: the number of the row in its file, from 0."""


@dataclass(frozen=True)
class FileReader:
    """Reads one file, or one folder, of a format; a `StepReader`."""

    location: Location
    columns: tuple[str, ...] | None = None
    """Only these, by their names in the file."""
    where: str | None = None
    """SQL condition on the columns of the file."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    partition: Values = field(default_factory=dict)
    """Columns from the names of its folders; columns of the file win."""
    max_expansion: float = MAX_EXPANSION
    """See `Expansion`."""

    format: ClassVar[str] = ""
    pushes: ClassVar[tuple[str, ...]] = ()
    """Which of `columns` and `where` are applied while the file is read; others are refused."""
    takes_others: ClassVar[bool] = False
    """Arguments that `reader` does not list are those of a library, which refuses what it does not know."""

    @property
    def uri(self) -> str:
        return self.location.uri

    @property
    def about(self) -> About:
        """What it says of itself."""
        return About()

    @property
    def places(self) -> Sequence[Location]:
        """The files and folders that it reads."""
        return [self.location]

    def batches(self) -> Iterator[pa.Table | Unreadable]:
        """See `StepReader`."""
        with self.reading():
            for batch in self.read():
                yield with_values(batch, self.partition, self.columns) if isinstance(batch, pa.Table) else batch

    def read(self) -> Iterator[pa.Table | Unreadable]:
        """What the file itself holds; whatever a library raises here means that the file is damaged, or out of reach."""
        raise NotImplementedError

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Raise what a library raises in the block as an error that names the file, and what to do."""
        try:
            yield
        except (OfflineError, ImportError, MemoryError) as error:
            if isinstance(error, SpaceError) and "columns" in self.pushes:
                raise SpaceError(f"{self.uri}: {error} Choose other columns by source.columns.") from error
            raise
        except Exception as error:  # each library has errors of its own
            raise_if_out_of_reach(error, self.uri)
            raise self.corrupt(self.told(error)) from error

    def told(self, error: BaseException) -> str:
        """The first line of an error, which may repeat arguments."""
        return masked_text(first_line(error) or repr(error), self.arguments)

    def corrupt(self, what: str) -> CorruptFileError:
        return CorruptFileError(
            f"{self.uri} cannot be read as {self.format}: {what}. Repair it, replace it or leave it out.", uri=self.uri
        )

    @property
    def own_columns(self) -> tuple[str, ...] | None:
        """The chosen columns but for those of the partition."""
        return None if self.columns is None else tuple(name for name in self.columns if name not in self.partition)

    @contextlib.contextmanager
    def cut(self) -> Iterator[tuple[Self, bool]]:
        """(a reader of the same URI that ends after the first rows, if that is quicker; whether rows are missing there)."""
        yield self, False

    def readers(self) -> list[FileReader]:
        """The readers of its contents: itself, unless it holds several files."""
        return [self]

    @classmethod
    def inside(cls, folder: Location, listing: Listing) -> list[Location]:
        """What is read, each by a reader of its own, of a folder that is of this format as a whole."""
        return [folder]


FORMATS: dict[str, reader] = {}
R = TypeVar("R", bound=type[FileReader])


@dataclass
class reader:  # noqa: N801
    """Registers a class as the reader of a format; what there is to know of it."""

    name: str
    suffixes: Sequence[str] = ()
    arguments: str = ""
    """The safe arguments: they name neither code nor other locations."""
    folder: Callable[[Collection[str]], bool] | None = None
    """Whether a folder with these files is one thing of the format; None: it is read file by file."""
    content: Callable[[Location], bool] | None = None
    """Whether a file with such a suffix is of the format; None: it is if it is of no other."""
    reader: type[FileReader] = field(default=FileReader, init=False)

    def __call__(self, cls: R) -> R:
        self.reader, cls.format = cls, self.name
        FORMATS[self.name] = self
        return cls


ZIP = "zip"
"""Files of any format may lie in one."""


def readers_of(name: str, location: Location, partition: Values, **how: Any) -> list[FileReader]:
    """The readers of a location: one, but for an archive one for each file in it.

    Raises:
        ConfigError: it does not take the arguments, `columns` or `where`.
    """
    form = FORMATS[name]
    refuse_pushdown(name, how, form.reader.pushes)
    if (other := sorted(how["arguments"].keys() - {*form.arguments.split()})) and not form.reader.takes_others:
        allowed = f"only {', '.join(form.arguments.split())}" if form.arguments else "none"
        raise ConfigError(f"The format {name} does not take these arguments: {', '.join(other)}; it takes {allowed}.")
    if location.path.lower().endswith(f".{ZIP}") and name != ZIP and form.folder is None:
        form, how = FORMATS[ZIP], how | {"of": name}
    return form.reader(location, partition=partition, **how).readers()


def formats_by_name(path: str) -> tuple[str, ...]:
    """Return the formats that a file of this name can have; those that its first bytes tell come first."""
    names = [name for name, form in FORMATS.items() if path.lower().endswith(tuple(form.suffixes))]
    return tuple(sorted(names, key=lambda name: FORMATS[name].content is None))


def format_by_content(file: Location, names: Sequence[str]) -> str:
    """The format of a file that has one of these."""
    contents = ((name, FORMATS[name].content) for name in names)
    return next(name for name, is_of in contents if is_of is None or is_of(file))


def refuse_pushdown(format: str, how: Mapping[str, Any], pushes: Collection[str] = ()) -> None:
    """Raises:
    ConfigError: `columns` or `where` are set, and the format does not apply them.
    """
    if refused := [name for name in ("columns", "where") if how[name] is not None and name not in pushes]:
        raise ConfigError(
            f"{' and '.join(refused)} {'do' if len(refused) > 1 else 'does'} not work with the format {format}; choose columns "
            "by a mapping, or by arguments of the reader, and prune rows after the import."
        )


def common_length(arrays: Mapping[str, Any], uri: str, hint: str = "") -> int:
    """The number of rows that all arrays have.

    Raises:
        SchemaError: they differ.
    """
    rows = {name: str(array.shape[0]) if array.ndim else "none" for name, array in arrays.items()}
    if "none" in rows.values() or len(set(rows.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in rows.items())
        raise SchemaError(
            f"The arrays of {uri} do not all have one row a step; their rows are: {listed}. Choose those that do with "
            f"source.columns.{hint}"
        )
    return int(next(iter(rows.values()), 0))
