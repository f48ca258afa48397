"""A list of what is below a root: what, when, from what. A line each, the newest last."""

from __future__ import annotations

import posixpath
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field

from offline_core.control_characters import visible_line
from offline_core.data.datasets.catalogue import Catalogue, Kind, open_catalogue
from offline_core.data.datasets.failure import FAILURE_FILE, read_failure
from offline_core.data.datasets.folder_kind import BEST, LAST, RESULT_KINDS
from offline_core.data.datasets.result_cache import RESULT_FILE
from offline_core.data.datasets.tags import FOLDER as TAGS
from offline_core.data.datasets.tags import read_tags
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, OfflineError
from offline_core.keeping.homepage.briefs import KINDS, Brief, Cached, load_cache, read_briefs
from offline_core.learning.metrics import METRICS_FILE
from offline_core.policies.registry import read_history
from offline_core.runtime.garbage import collection_paused
from offline_core.runtime.reporting.card import Card, Section

_FIRST = datetime.min.replace(tzinfo=UTC)


COLUMNS = ("when (UTC)", "kind", "name", "what", "from")
LISTED_KINDS = ("dataset", "policy", "alias", *RESULT_KINDS)
LEAST_WIDTH = 10
"""Characters of a column, however narrow the terminal is."""
MOST_TOLD = 80
"""Characters of what a thing is or came to: a list has no room for the reasons of a decision."""
UNCUT = 3
"""Columns that a narrow terminal does not cut: when, kind and name."""


@dataclass(slots=True)
class Listed:
    """One thing below a root."""

    kind: str
    """dataset, policy, training, expert, fine-tuning, sweep, evaluation, estimate, decision, …"""
    name: str
    """Relative to the root; of a dataset with its version, of an evaluation that of the policy."""
    made: datetime | None
    """When; None: the store does not say."""
    what: str
    """What it is or came to, in a few words."""
    source: str
    """What it was made from, relative to the root."""
    tags: tuple[str, ...] = ()
    """Of a version of a dataset."""
    policy: str | None = None
    """The policy that a run came to, relative to the root."""


class RootListing(BaseModel):
    """What is below a root: `for each in listing`, `listing[-1]`, `len(listing)`. It prints as a table."""

    model_config = ConfigDict(frozen=True)

    root: str
    entries: list[Listed] = Field(description="The oldest first.")
    problems: list[tuple[str, str]] = Field([], description="(file, why it is not listed).")

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Listed]:  # type: ignore[override]  # of a model, it would be over its fields
        return iter(self.entries)

    def __getitem__(self, index: int) -> Listed:
        return self.entries[index]

    def table(self) -> str:
        """A line for each thing, cut where the terminal ends."""
        if not self.entries:
            return visible_line(f"There is nothing of this pipeline below {self.root}.")
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        return "\n".join(lines_of([COLUMNS, *map(_row, self.entries)], width))

    def __str__(self) -> str:
        return "\n".join([self.table()] + [visible_line(f"{file} is not listed: {why}") for file, why in self.problems])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        problems = [f"{file} is not listed: {why}" for file, why in self.problems]
        rows = [*map(_row, self.entries)]
        return Card(f"Below {self.root}", warnings=problems, sections=[Section("", (), COLUMNS, rows)]).html(is_page=False)


def _row(listed: Listed) -> tuple[str, ...]:
    when = "" if listed.made is None else listed.made.isoformat(" ", "minutes")[:16]
    name = " ".join([listed.name, *(f"@{tag}" for tag in listed.tags)]) if listed.tags else listed.name
    return when, listed.kind, name, shortened(listed.what), listed.source


def list_root(root: str, *, kind: str | None = None) -> RootListing:
    """List the datasets, policies and results at a root and below, by what describes them; no data is read.

    Arguments:
        kind: only those of this kind, one of `LISTED_KINDS`.

    Raises:
        ConfigError: there is no such kind.
        StorageError: the root cannot be listed; of a disk, there is none.
    """
    if kind is not None and kind not in LISTED_KINDS:
        raise ConfigError(f"Nothing is of the kind {kind!r}; kinds are {', '.join(LISTED_KINDS)}.")
    with collection_paused():  # thousands of rows are many objects, none of them garbage
        with ThreadPoolExecutor(1) as pool:
            cached = pool.submit(load_cache, Location.of(root))  # meanwhile, the root is listed
            catalogue = open_catalogue(root)
        rows = _Rows(catalogue, cached.result())
        entries = [
            *rows.datasets(),
            *rows.policies(),
            *rows.results(),
            *rows.tests(),
            *rows.unfinished(),
            *rows.aliases(),
        ]
        entries.sort(key=lambda entry: (entry.made or _FIRST, entry.name))
    shown = entries if kind is None else [entry for entry in entries if entry.kind == kind]
    return RootListing(root=catalogue.root.uri, entries=shown, problems=rows.problems)


class _Rows:
    """What the files of a root say, as rows."""

    def __init__(self, catalogue: Catalogue, cached: Mapping[str, Cached]) -> None:
        self.catalogue = catalogue
        self.names = {kind: catalogue.shown(kind) for kind in KINDS}
        self.briefs, self.problems = read_briefs(catalogue, self.names, cached)
        self._prefix = f"{catalogue.root.uri.rstrip('/')}/"
        self._runs = {posixpath.dirname(name) for name in self.names["result"] if name in self.briefs}
        self._policies = {posixpath.dirname(name): self.briefs[name] for name in self.names["policy"] if name in self.briefs}

    def datasets(self) -> Iterator[Listed]:
        tagged = {posixpath.dirname(posixpath.dirname(posixpath.dirname(name))) for name in self.catalogue.shown("tag")}
        tags = {folder: self._tags(folder) for folder in tagged}
        for name, brief in self._read("version"):
            folder, number = posixpath.dirname(posixpath.dirname(name)), int(posixpath.basename(name)[:-5])
            check = self.briefs.get(posixpath.join(folder, f"_checks/{number:06d}.json"))
            yield Listed(
                kind="dataset",
                name=f"{folder or '.'}@{number}",
                made=_time(brief.made),
                what=brief.what if check is None else f"{brief.what}, check: {check.what}",
                source=self._made_from(brief),
                tags=tuple(tag for tag, version in tags.get(folder, {}).items() if version == number),
            )

    def policies(self) -> Iterator[Listed]:
        """Those that are not what a run of the list came to."""
        for name, brief in self._policies.items():
            if posixpath.dirname(name) not in self._runs or posixpath.basename(name) not in (BEST, LAST):
                yield Listed(
                    kind="policy",
                    name=name or ".",
                    made=_time(brief.made),
                    what=brief.what,
                    source=self._made_from(brief),
                    policy=name or ".",
                )

    def results(self) -> Iterator[Listed]:
        for file, brief in self._read("result"):
            name = posixpath.dirname(file)
            best = next((folder for end in (BEST, LAST) if (folder := posixpath.join(name, end)) in self._policies), None)
            policy = None if best is None else self._policies[best]
            learned = "" if policy is None else policy.algorithm or brief.algorithm
            made_from = "" if policy is None else self._sources(policy) or policy.environment
            is_told = brief.kind not in ("training", "expert", "fine-tuning", "check")
            yield Listed(
                kind=brief.kind,
                name=name or ".",
                made=self._changed(file) or (policy and _time(policy.made)),
                what=brief.what if is_told else ", ".join(part for part in (learned, brief.what) if part),
                source=self._sources(brief) or made_from,
                policy=best or (self._name_of(brief.policy) if brief.policy else None),
            )

    def tests(self) -> Iterator[Listed]:
        """Evaluations and estimates of policies."""
        for kind in ("evaluation", "estimate"):
            for file, brief in self._read(kind):
                if brief.kind == kind:
                    policy = file.rpartition("/")[0].rpartition("/")[0] or "."
                    there = self._policies.get(policy if policy != "." else "")
                    is_of_it = there is None or {*brief.fingerprints} <= {*there.fingerprints}
                    yield Listed(
                        kind=kind,
                        name=policy,
                        made=self._changed(file),
                        what=brief.what if is_of_it else f"of a policy that was replaced since: {brief.what}",
                        source=self._sources(brief) or policy,
                        policy=policy if is_of_it else None,
                    )

    def unfinished(self) -> Iterator[Listed]:
        files = {posixpath.dirname(file): file for kind in ("metrics", "failure") for file in self.catalogue.shown(kind)}
        for name, file in files.items():
            if posixpath.join(name, RESULT_FILE) in self.catalogue.files:
                continue
            what = "not done: it runs, or was stopped"
            if posixpath.basename(file) == FAILURE_FILE:
                try:
                    failure = read_failure(self.catalogue.location(name))
                except OfflineError as error:
                    self.problems.append((file, str(error)))
                    continue
                if failure is None and posixpath.join(name, METRICS_FILE) not in self.catalogue.files:
                    continue  # another program's
                what = what if failure is None else f"failed: {failure.error}"
            yield Listed(kind="training", name=name or ".", made=self._changed(file), what=what, source="")

    def aliases(self) -> Iterator[Listed]:
        for folder in dict.fromkeys(posixpath.dirname(name) for name in self.catalogue.shown("move")):
            entry = self.catalogue.location(posixpath.dirname(folder))
            try:
                aliases = read_history(entry).aliases
            except OfflineError as error:
                self.problems.append((folder, str(error)))
                continue
            for alias, move in aliases.items():
                yield Listed(
                    kind="alias",
                    name=f"{self._name_of(entry.uri)}@{alias}",
                    made=move.moved_at,
                    what=f"names the policy {move.fingerprint}",
                    source=self._name_of(move.source or ""),
                )

    def _read(self, kind: Kind) -> Iterator[tuple[str, Brief]]:
        return ((name, self.briefs[name]) for name in self.names[kind] if name in self.briefs)

    def _tags(self, folder: str) -> dict[str, int]:
        try:
            return read_tags(self.catalogue.location(folder))
        except OfflineError as error:
            self.problems.append((posixpath.join(folder, TAGS), str(error)))
            return {}

    def _changed(self, file: str) -> datetime | None:
        """When a file was written; None: the store does not say."""
        changed_ns = self.catalogue.files[file].changed_ns
        return None if changed_ns is None else datetime.fromtimestamp(changed_ns / 1e9, UTC)

    def _name_of(self, uri: str) -> str:
        """A URI relative to the root, if it is below it."""
        return uri.removeprefix(self._prefix)

    def _sources(self, brief: Brief) -> str:
        return ", ".join([uri.removeprefix(self._prefix) for uri in brief.sources])

    def _made_from(self, brief: Brief) -> str:
        return " ".join(part for part in (brief.operation.replace("_", "-"), self._sources(brief)) if part)


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def lines_of(rows: Sequence[Sequence[str]], width: int | None) -> Iterator[str]:
    """The rows with columns one below the other; those after `UNCUT` share what is left of the width, None: all they need.

    A list may have 10^5 rows, so what is true of a whole row or column is asked once.
    """
    cells = [row if "".join(row).isprintable() else [*map(visible_line, row)] for row in rows]
    columns = [*zip(*cells, strict=True)]
    widths = [max(map(len if "".join(column).isascii() else _cells, column)) for column in columns]
    if width is not None:
        left = max(2 * LEAST_WIDTH, width - sum(widths[:UNCUT]) - 2 * (len(widths) - 1))
        first, second = widths[UNCUT:]
        second = min(second, max(left // 2, left - first))
        widths[UNCUT:] = [min(first, left - second), second]
    line = "  ".join(f"{{:<{at}}}" for at in widths)
    for row in cells:
        if width is None and "".join(row).isascii():
            yield line.format(*row).rstrip()
        else:
            yield "  ".join(map(_fitted, row, widths)).rstrip()


def shortened(text: str) -> str:
    """A text of at most `MOST_TOLD` characters: a longer one ends at a word, with …"""
    if len(text) <= MOST_TOLD:
        return text
    return f"{text[: MOST_TOLD - 1].rpartition(' ')[0].rstrip(' ,;:.') or text[: MOST_TOLD - 1]}…"


def _fitted(cell: str, width: int) -> str:
    """A text that takes so many cells of a terminal, the end of a longer one cut."""
    from rich.cells import set_cell_size

    return set_cell_size(cell, width) if _cells(cell) <= width else f"{set_cell_size(cell, width - 1)}…"


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return len(text) if text.isascii() else cell_len(text)
