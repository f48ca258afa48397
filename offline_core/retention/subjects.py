"""Which episodes a condition means: in the datasets that have its columns, and in all that was made from these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from offline_core.curation.condition import Condition
from offline_core.datasets.dataset import Dataset
from offline_core.datasets.episode_index import PART_SUFFIX, episode_index
from offline_core.datasets.manifest import FileEntry
from offline_core.datasets.row_groups import RowGroup, row_groups
from offline_core.episodes import columns
from offline_core.errors import ConfigError, CorruptFileError
from offline_core.retention.catalog import Catalog
from offline_core.storage.parquet_files import read_footer


@dataclass(slots=True)
class Subjects:
    """Episodes of one dataset that are meant."""

    files: dict[str, np.ndarray] = field(default_factory=dict)
    """(episodes,) bool by file that holds some."""
    steps: dict[str, int] = field(default_factory=dict)
    """Steps of these, by file."""
    leftovers: list[str] = field(default_factory=list)
    """Files of no version that hold some."""
    ids: set[str] = field(default_factory=set)
    """Without the suffixes of parts."""
    contents: set[str] = field(default_factory=set)


def find_subjects(catalog: Catalog, where: Condition) -> tuple[dict[str, Subjects], list[str]]:
    """(those by dataset of the catalog, files of no version that cannot be read, relative to the root).

    An episode of a derived dataset is meant if it has the id of one that is meant in the only dataset it was made from, or the
    content of one in any: so an id that two merged datasets use for two episodes means one of them.

    Raises:
        ConfigError: no dataset has the columns of the condition, or it cannot be used on them.
    """
    found: dict[str, Subjects] = {}
    unreadable: list[str] = []
    has_columns = False
    for name in parents_first(catalog):
        parents = _parents(catalog, name)
        inherited_ids = found[parents[0]].ids if len(parents) == 1 and parents[0] in found else set()
        inherited_contents = {content for parent in parents if parent in found for content in found[parent].contents}
        subjects, listed = Subjects(), _listed(catalog.datasets[name])
        for entry, dataset in _files(catalog, name, unreadable):
            index = episode_index(dataset, [*columns.EPISODE_METADATA])
            ids = index[columns.EPS_ID].str.replace(PART_SUFFIX.pattern, "")
            meant, knows = _met(dataset, index, where)
            has_columns |= knows
            meant |= ids.is_in(sorted(inherited_ids)).to_numpy()
            meant |= index[columns.CONTENT].is_in(sorted(inherited_contents)).fill_null(False).to_numpy()
            if meant.any():
                if entry.path in listed:
                    subjects.files[entry.path] = meant
                    subjects.steps[entry.path] = int(index[columns.LENGTH].filter(meant).sum())
                else:
                    subjects.leftovers.append(entry.path)
                subjects.ids |= set(ids.filter(meant))
                subjects.contents |= set(index[columns.CONTENT].filter(meant).drop_nulls())
        if subjects.ids:
            found[name] = subjects
    if not has_columns:
        names = ", ".join(sorted(where.names))
        raise ConfigError(
            f"No dataset below {catalog.root.uri} has {names}. A condition may name {', '.join(columns.EPISODE_METADATA)}, and "
            "columns that have one value in all steps of an episode."
        )
    return found, unreadable


def _listed(versions: Sequence[Dataset]) -> dict[str, tuple[FileEntry, Dataset]]:
    """Each file of some version once, with a version that lists it."""
    return {entry.path: (entry, dataset) for dataset in versions for entry in dataset.manifest.files}


def _files(catalog: Catalog, name: str, unreadable: list[str]) -> Iterator[tuple[FileEntry, Dataset]]:
    """All data files of a dataset, those of no version too, each as a dataset of one file."""
    known = catalog.datasets[name]
    listed = _listed(known)
    for entry, dataset in listed.values():
        yield entry, one_file(dataset, entry)
    for path in sorted(set(catalog.files_of(name)) - listed.keys()):
        file = known[-1].location.child(path)
        try:
            rows = read_footer(file).num_rows
        except CorruptFileError:
            unreadable.append(f"{name}/{path}" if name else path)
            continue
        entry = FileEntry(path=path, rows=rows, episodes=0, steps=0, bytes=0, sha256="")
        yield entry, one_file(known[-1], entry)


def one_file(dataset: Dataset, entry: FileEntry) -> Dataset:
    """A dataset of one file."""
    return Dataset(dataset.location, dataset.manifest.model_copy(update={"files": [entry]}))


def _met(dataset: Dataset, index: pl.DataFrame, where: Condition) -> tuple[np.ndarray, bool]:
    """((episodes,) bool: meets the condition, whether the file has its columns)."""
    for name in sorted(where.names - set(columns.EPISODE_METADATA)):
        values = [value for group in row_groups(dataset) for value in _constants(group, name)]
        if all(value is None for value in values):
            return np.zeros(len(index), bool), False
        index = index.with_columns(pl.Series(name, values, strict=False))
    return where.met(index).fill_null(False).to_numpy().copy(), True


def _constants(group: RowGroup, name: str) -> list[object]:
    """For each episode the value that a column has in all its steps, None if it has several or none."""
    if columns.ITEM not in group.names:
        if name not in group.names:
            return [None] * pl.DataFrame(group.read([columns.EPS_ID]))[columns.EPS_ID].n_unique()
        steps = pl.DataFrame(group.read([columns.EPS_ID, name]))
        one = pl.when(pl.col(name).n_unique() == 1).then(pl.col(name).first())
        return steps.group_by(columns.EPS_ID, maintain_order=True).agg(one.alias("one"))["one"].to_list()
    values = (episode.extras.get(name) for episode in group.episodes())
    return [None if each is None or not isinstance(each, np.ndarray) else _one(each) for each in values]


def _one(values: np.ndarray) -> object:
    return values[0].item() if values.ndim == 1 and len(values) and (values == values[0]).all() else None


def _parents(catalog: Catalog, name: str) -> list[str]:
    """The other datasets that any version of this one was made from."""
    made_from = [each for dataset in catalog.datasets[name] for each in catalog.made_from(dataset.manifest.parents)]
    names = {dataset.location.uri: other for other, versions in catalog.datasets.items() for dataset in versions}
    return sorted({names[each.location.uri] for each in made_from} - {name})


def parents_first(catalog: Catalog) -> list[str]:
    """The datasets in an order in which each comes after those that it was made from, as far as they are no circle."""
    waiting: Mapping[str, set[str]] = {name: set(_parents(catalog, name)) for name in catalog.datasets}
    done: list[str] = []
    while rest := [name for name in waiting if name not in done]:
        done.append(min(rest, key=lambda name: (len(waiting[name] - {*done}), name)))
    return done
