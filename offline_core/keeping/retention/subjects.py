"""Which episodes a condition means: in the datasets that have its columns, and in all that was made from these."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from offline_core.data.curation.condition import Condition
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.manifest import FileEntry
from offline_core.data.episodes import columns
from offline_core.data.importing.imported import Imported, read_late
from offline_core.data.store.parquet_files import read_footer
from offline_core.errors import ConfigError, CorruptFileError
from offline_core.keeping.contents import Contents

_LAST_SUFFIX = re.compile(r"@\d+(-[0-9a-f]{8})?\Z")
"""What `PART_SUFFIX` of an episode index is made of, once."""


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
    contents: set[str] = field(default_factory=set)
    all_ids: set[str] = field(default_factory=set)
    """Of the dataset, meant or not."""

    @property
    def related_ids(self) -> set[str]:
        """The ids, and those that they may be parts of."""
        return {base for eps_id in self.ids for base in (eps_id, *_bases(eps_id))}


def _bases(eps_id: str) -> Iterator[str]:
    """The ids that an id may be a part of, by the suffixes that imports and prunings add."""
    while (base := _LAST_SUFFIX.sub("", eps_id)) != eps_id:
        yield base
        eps_id = base


def find_subjects(contents: Contents, where: Condition) -> tuple[dict[str, Subjects], list[str]]:
    """(those by dataset, files of no version that cannot be read, relative to the root).

    An episode of a derived dataset is meant if it has the id of one that is meant in the only dataset it was made from, or is a
    part of it, or has the content of one in any: so an id that two merged datasets use for two episodes means one of them. Rows
    that wait for late ones (`Imported.left_out`) count as episodes by their id.

    Raises:
        ConfigError: no dataset has the columns of the condition, or it cannot be used on them.
    """
    subjects_by_name: dict[str, Subjects] = {}
    looked_at: dict[str, Subjects] = {}
    unreadable: list[str] = []
    has_columns = False
    for name in contents.parents_first():
        parents = [parent_name for parent_name in contents.parents[name] if parent_name in looked_at]
        parent = looked_at[parents[0]] if len(contents.parents[name]) == 1 and parents else Subjects()
        inherited_contents = sorted({content for parent_name in parents for content in looked_at[parent_name].contents})
        subjects, listed = Subjects(), _listed(contents.datasets[name])
        for entry, dataset in _files(contents, name, unreadable):
            index = dataset.index([*columns.EPISODE_METADATA])
            meant, knows = _met(dataset, index, where)
            has_columns |= knows
            meant |= np.array([_inherits(eps_id, parent) for eps_id in index[columns.EPS_ID].to_list()], bool)
            meant |= index[columns.CONTENT].is_in(inherited_contents).fill_null(False).to_numpy()
            subjects.all_ids |= set(index[columns.EPS_ID])
            if meant.any():
                if entry.path in listed:
                    subjects.files[entry.path] = meant
                    subjects.steps[entry.path] = int(index[columns.LENGTH].filter(meant).sum())
                else:
                    subjects.leftovers.append(entry.path)
                subjects.ids |= set(index[columns.EPS_ID].filter(meant))
                subjects.contents |= set(index[columns.CONTENT].filter(meant).drop_nulls())
        waiting, knows = _waiting(contents.datasets[name], where)
        has_columns |= knows
        subjects.ids |= waiting
        looked_at[name] = subjects
        if subjects.ids:
            subjects_by_name[name] = subjects
    if not has_columns:
        names = ", ".join(sorted(where.names))
        raise ConfigError(
            f"No dataset below {contents.root.uri} has {names}. A condition may name {', '.join(columns.EPISODE_METADATA)}, "
            "and columns that have one value in all steps of an episode."
        )
    return subjects_by_name, unreadable


def _inherits(eps_id: str, parent: Subjects) -> bool:
    """Whether an episode of a derived dataset is one that is meant in its parent, or a part of one."""
    if eps_id in parent.all_ids:
        return eps_id in parent.ids
    return any(base in parent.ids for base in _bases(eps_id))


def _waiting(versions: Sequence[Dataset], where: Condition) -> tuple[set[str], bool]:
    """(ids of rows that wait for late ones and meet the condition, whether they have its columns)."""
    ids: set[str] = set()
    knows = False
    imports = ((version.location, Imported.of(version.manifest)) for version in versions)
    files = {entry.path: (root, entry) for root, imported in imports if imported for entry in imported.left_out}
    for root, entry in files.values():
        rows = read_late(root, entry)
        if not where.names <= {*rows.column_names}:
            continue
        wanted = rows.select(sorted({columns.EPS_ID, *where.names}))
        values = (pl.when(pl.col(name).n_unique() == 1).then(pl.col(name).first()).alias(name) for name in where.names)
        index = (
            pl.DataFrame(wanted)
            .group_by(columns.EPS_ID, maintain_order=True)
            .agg(value for value, name in zip(values, where.names, strict=True) if name != columns.EPS_ID)
        )
        knows = True
        ids |= set(index[columns.EPS_ID].filter(where.met(index).fill_null(False)))
    return ids, knows


def _listed(versions: Sequence[Dataset]) -> dict[str, tuple[FileEntry, Dataset]]:
    """Each file of some version once, with a version that lists it."""
    return {entry.path: (entry, dataset) for dataset in versions for entry in dataset.manifest.files}


def _files(contents: Contents, name: str, unreadable: list[str]) -> Iterator[tuple[FileEntry, Dataset]]:
    """All data files of a dataset, those of no version too, each as a dataset of one file."""
    known = contents.datasets[name]
    listed = _listed(known)
    for entry, dataset in listed.values():
        yield entry, dataset.with_files([entry])
    for path in sorted(set(contents.files_of(name)) - listed.keys()):
        file = known[-1].location.child(path)
        try:
            rows = read_footer(file).num_rows
        except CorruptFileError:
            unreadable.append(f"{name}/{path}" if name else path)
            continue
        entry = FileEntry(path=path, rows=rows, episodes=0, steps=0, bytes=0, sha256="")
        yield entry, known[-1].with_files([entry])


def _met(dataset: Dataset, index: pl.DataFrame, where: Condition) -> tuple[np.ndarray, bool]:
    """((episodes,) bool: meets the condition, whether the file has its columns)."""
    for name in sorted(where.names - set(columns.EPISODE_METADATA)):
        values = dataset.constants(name)
        if all(value is None for value in values):
            return np.zeros(len(index), bool), False
        index = index.with_columns(pl.Series(name, values, strict=False))
    return where.met(index).fill_null(False).to_numpy().copy(), True
