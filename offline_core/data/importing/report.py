"""What became of the rows of a source: none is left out of the account."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from offline_core.data.datasets.dataset import Dataset, DatasetRef
from offline_core.data.datasets.dataset_card import dataset_card
from offline_core.data.datasets.manifest import FileEntry, digest
from offline_core.data.formats.sources.step_reader import Unreadable
from offline_core.data.store.location import Location
from offline_core.errors import SchemaError
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.result import Part, Result
from offline_core.runtime.units import count_text

log = logging.getLogger(__name__)

QUARANTINE = "_quarantine"
QUARANTINE_ADVICE = " With unreadable: quarantine, such rows are listed and the rest goes on."


def list_unreadable(root: Location, unreadable: Sequence[Unreadable]) -> str:
    """Write a JSON line for each row or file that cannot be read to a file below `root`; return its URI."""
    lines = [
        json.dumps(
            {
                "uri": failure.uri,
                "row": failure.row,
                "rows": failure.rows,
                "error": type(failure.error).__name__,
                "reason": str(failure.error),
            }
        )
        for failure in unreadable
    ]
    file = root.child(f"{QUARANTINE}/{digest(lines)}.ndjson")
    file.write(("\n".join(lines) + "\n").encode())
    told = count_text(len(unreadable), "row or file", "rows or files")
    log.warning("%s cannot be read: see %s", told, file.uri)
    return file.uri


_SHORTEST, _LONGEST = "shortest_time_gap", "longest_time_gap"


class Counts(BaseModel):
    """rows + stored_rows = steps + duplicates + dropped_last_steps + dropped_steps + quarantined_rows, always.

    The writer of the episodes counts them and their steps.
    """

    model_config = ConfigDict(extra="forbid")

    rows: int = Field(0, description="Rows that were read, and those that are known to be unreadable.")
    stored_rows: int = Field(0, description="Rows of the version before whose episodes were put together again with late ones.")
    steps: int = 0
    episodes: int = 0
    duplicates: int = Field(0, description="Rows that occur again.")
    dropped_last_steps: int = Field(
        0, description="Last steps without a next observation, of episodes that do not terminate, dropped as declared."
    )
    repeated_last_obs: int = Field(0, description="Ends whose next observation is not known: the last one is repeated.")
    terminations: int = Field(0, description="Steps of the source that terminate an episode, be they dropped or not read.")
    quarantined_terminations: int = Field(0, description="Those of them that are in rows that cannot be read.")
    dropped_episodes: int = Field(0, description="Incomplete episodes, dropped as declared, and those without a step.")
    dropped_steps: int = Field(0, description="The steps of those.")
    quarantined_rows: int = Field(0, description="Rows that cannot be read.")
    quarantined_files: int = Field(0, description="Files of which more rows, how many is not known, cannot be read.")
    final_observations: int = Field(
        0, description="Rows that are no steps: they hold the observation after the last one, as in RLDS."
    )
    open_ends: int = Field(0, description="Episodes, or parts of one, whose last step has no end flag.")
    declared_ends: int = Field(0, description="Those of them that terminate, as episodes.incomplete: end declares.")
    gaps: int = Field(0, description="Places within an episode where steps are missing.")
    time_gaps: int = Field(0, description="Places where so much time lies between steps of an id that an episode begins there.")
    shortest_time_gap: float | None = Field(
        None, description="The shortest of those, in seconds if t holds timestamps, else in its unit."
    )
    longest_time_gap: float | None = Field(None, description="The longest of those, likewise.")
    alternating_ids: int = Field(0, description="Ids whose steps in order of time alternate between files.")
    set_back_ids: int = Field(
        0, description="Ids whose times go back in the source, once a year and by up to an hour, as local times do."
    )
    late_starts: int = Field(0, description="Episodes whose first step is missing.")
    restarted_ids: int = Field(0, description="Episodes that go on under the id of one that had ended.")
    ambiguous_links: int = Field(0, description="Links between equal observations that could have been others.")
    clipped_actions: int = Field(
        0,
        description="Steps whose action lies outside the range it was recorded in, clipped as RLlib clips it.",
    )
    empty_rows: int = Field(0, description="Lines of CSV files without any value, which are no rows.")
    time_limits: int = Field(0, description="Ends at the declared time limit, made truncations.")
    repeated_rows: int = Field(0, description="Rows that are an episode each and equal another one of their id, t and all.")
    lone_rows: int = Field(0, description="Rows that are an episode each and terminate: nothing says what follows them.")

    def __add__(self, other: Counts) -> Counts:
        summed = Counts.model_fields.keys() - {_SHORTEST, _LONGEST}
        numbers = {name: getattr(self, name) + getattr(other, name) for name in summed}
        shortest = (counts.shortest_time_gap for counts in (self, other) if counts.shortest_time_gap is not None)
        longest = (counts.longest_time_gap for counts in (self, other) if counts.longest_time_gap is not None)
        ends = {_SHORTEST: min(shortest, default=None), _LONGEST: max(longest, default=None)}
        return Counts(**numbers, **ends)

    def with_findings(self, findings: Findings) -> Counts:
        """Add the clipped actions, the empty rows, and the rows that cannot be read.

        All rows must be accounted for by now, or an AssertionError is raised.
        """
        unreadable = findings.unreadable
        rows = sum(failure.rows for failure in unreadable)
        files = len({failure.uri for failure in unreadable if failure.rows == 0})
        terminations = sum(failure.terminations for failure in unreadable)
        whole = self + Counts(
            rows=rows,
            quarantined_rows=rows,
            quarantined_files=files,
            terminations=terminations,
            quarantined_terminations=terminations,
            clipped_actions=findings.clipped_actions,
            empty_rows=findings.empty_rows,
        )
        lost = whole.duplicates + whole.dropped_last_steps + whole.dropped_steps + whole.quarantined_rows
        lost += whole.final_observations
        if (rows := whole.rows + whole.stored_rows) != whole.steps + lost:
            raise AssertionError(f"{rows - whole.steps - lost} rows are unaccounted for: {whole}")
        return whole

    def __str__(self) -> str:
        """The numbers that are not zero, in words."""
        words = (f"{value:,} {_words(name, value)}" for name, value in self.model_dump().items() if value and name != _SHORTEST)
        return ", ".join(words) or "no rows"


def _words(name: str, count: float) -> str:
    """The words of a count, which name several things."""
    words = name.replace("_", " ")
    return words.removesuffix("s") if count == 1 and not words.endswith("obs") else words


_VALUE = re.compile(
    r"(?:, such as|says|holds|has the time|as long as the others:) (?:'[^']*'|\"[^\"]*\"|[-+.\de]+)"
    r"|line [\d,]+|(?:the )?step (?:at )?[-\d:. ]+ of episode .*? and row \d+ of .*?(?=\. )"
)


@dataclass
class Late:
    """What became of stored episodes, by ids of the source."""

    unchanged: set[str] = field(default_factory=set)
    completed: set[str] = field(default_factory=set)
    corrected: set[str] = field(default_factory=set)
    corrected_steps: int = 0
    rebuilt: int = 0
    """Episodes that were made of those and of late rows."""
    losses_changed: set[str] = field(default_factory=set)
    """Those without a new row, of which is known now that rows beside theirs were lost, or are not."""

    @property
    def replaced(self) -> set[str]:
        return self.completed | self.corrected | self.losses_changed

    def __iadd__(self, other: Late) -> Late:
        self.unchanged |= other.unchanged
        self.completed |= other.completed
        self.corrected |= other.corrected
        self.corrected_steps += other.corrected_steps
        self.rebuilt += other.rebuilt
        self.losses_changed |= other.losses_changed
        return self


class Place(NamedTuple):
    """Where in a source something could not be read."""

    file: int
    row: int
    eps_id: str | None = None
    """The id in the source; None: it may be of any episode."""


class Reason(NamedTuple):
    """Why something could not be read."""

    first: Unreadable
    rows: int
    files: int
    """Files, and ends of files, of which it is not known how many rows they have."""

    def __str__(self) -> str:
        """Two sentences."""
        what = (count_text(count, noun) for count, noun in ((self.rows, "row"), (self.files, "file")) if count)
        return f"{' and '.join(what)} could not be read: {str(self.first.error).removesuffix('.')}. First: {self.first.place}."


@dataclass
class Findings:
    """What a part of an import found besides episodes."""

    rule: Literal["fail", "quarantine"]
    """Whether rows that cannot be read are raised, or listed."""
    unreadable: list[Unreadable] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    """Of what could not be read."""
    empty_files: set[int] = field(default_factory=set)
    """Numbers of the files that gave no row, good or bad."""
    empty_rows: int = 0
    """Lines without any value, which readers left out."""
    clipped_actions: int = 0
    """Steps whose action lay outside the range they were recorded in."""
    without_partner: Counter[int] = field(default_factory=Counter)
    """How many rows have no partner, by the number of the join."""
    waiting: set[int] = field(default_factory=set)
    """Numbers of the files with rows that have no partner."""
    extras: dict[str, str] = field(default_factory=dict)
    """Columns of the source that are not mapped and cannot be kept, and why."""
    notes: list[str] = field(default_factory=list)
    """What was inferred and not declared, what readers took for granted, and what was left out, each once."""
    late: Late = field(default_factory=Late)
    cuts: list[FileEntry] = field(default_factory=list)
    left_out: list[FileEntry] = field(default_factory=list)
    """Files for later appends, see `stored.Remainder`."""

    def __iadd__(self, other: Findings) -> Findings:
        self.unreadable += other.unreadable
        self.places += other.places
        self.empty_files |= other.empty_files
        self.empty_rows += other.empty_rows
        self.clipped_actions += other.clipped_actions
        self.without_partner += other.without_partner
        self.waiting |= other.waiting
        self.extras |= other.extras
        self.note(*other.notes)
        self.late += other.late
        self.cuts += other.cuts
        self.left_out += other.left_out
        return self

    @property
    def reasons(self) -> list[Reason]:
        """Why rows and files cannot be read, the most frequent reason first.

        Errors that only name other values or rows are one reason.
        """
        by_kind = dict[str, Reason]()
        for failure in self.unreadable:
            kind = _VALUE.sub("", str(failure.error)).replace(failure.uri, "")
            first, rows, files = by_kind.get(kind, Reason(failure, 0, 0))
            by_kind[kind] = Reason(first, rows + failure.rows, files + (failure.rows == 0))
        return sorted(by_kind.values(), key=lambda reason: -reason.rows - reason.files)

    def refuse(self, rows: Unreadable) -> None:
        """List rows that cannot be read, or raise their error with its place."""
        if self.rule == "fail":
            is_one_of_many = rows.row is not None or not isinstance(rows.error, SchemaError)  # columns are wrong for all rows
            error = rows.located_error
            error.args = (f"{error}{QUARANTINE_ADVICE if is_one_of_many else ''}",)
            raise error
        self.unreadable.append(rows)

    def note(self, *notes: str | None) -> None:
        """Add what was not said yet."""
        self.notes += [note for note in dict.fromkeys(notes) if note is not None and note not in self.notes]


class Appended(Part):
    """What an append made of the version before."""

    files_seen: int = Field(description="Files of the source that earlier imports had read: not read again.")
    files_read_again: int = Field(
        0,
        description="Files seen before that were read again for rows without a partner, as a file of a join is new or changed.",
    )
    files_new: int = Field(description="Files that were read.")
    files_changed: int = Field(description="Those of them that an earlier import had read with other content.")
    episodes_added: int = Field(description="Episodes with ids that the version before has not.")
    episodes_unchanged: int = Field(description="Ids that came again with no new row.")
    episodes_completed: int = Field(description="Ids that got further steps: their episodes are replaced.")
    episodes_corrected: int = Field(description="Ids of which a stored step has other values now: replaced, too.")
    steps_added: int = Field(description="Steps after, less those before.")
    steps_corrected: int = Field(description="Stored steps with other values now.")

    def __str__(self) -> str:
        again = f"{self.files_read_again:,} read again, " if self.files_read_again else ""
        known = f"{count_text(self.files_seen, 'file')} read before, {again}{self.files_new - self.files_changed:,} new"
        changed = f", {self.files_changed:,} changed" if self.files_changed else ""
        episodes = ", ".join(
            f"{count:,} {what}"
            for what in ("added", "unchanged", "completed", "corrected")
            if (count := getattr(self, f"episodes_{what}"))
        )
        steps = f"{count_text(self.steps_added, 'step')} added, {self.steps_corrected:,} corrected"
        return f"{known}{changed}; episodes: {episodes or 'none'}; {steps}."


class ImportResult(Result):
    """What was imported."""

    dataset: DatasetRef
    counts: Counts
    notes: list[str] = Field([], description="What is worth knowing of how it was imported, a sentence each.")
    recognised: list[str] = Field([], description="Those of the notes that only say what was recognised of the source.")
    observation_space: str | None = Field(None, description="Of the dataset, declared or inferred; None: not known.")
    action_space: str | None = Field(None, description="Likewise.")
    replaced: str | None = Field(
        None,
        description="What the version before holds and this one does not.",
    )
    appended: Appended | None = Field(None, description="Of an append: what it did to the version before.")
    quarantine: str | None = Field(None, description="Where rows and files that cannot be read are listed, with the reasons.")

    @property
    def warnings(self) -> list[str]:
        """The notes on what may be wrong: not what was recognised, nor the first one of an append, which says what it did."""
        return [note for note in self.notes[bool(self.appended) :] if note not in self.recognised]

    def card(self) -> Card:
        counts = self.counts
        steps, episodes = count_text(counts.steps, "step"), count_text(counts.episodes, "episode")
        stored = f" and {counts.stored_rows:,} stored before" if counts.stored_rows else ""
        told = f"{count_text(counts.rows, 'row')}{stored} became {steps} of {episodes}"
        if counts.duplicates:
            told += f"; {count_text(counts.duplicates, 'row')} came again"
        is_part = bool(counts.quarantined_rows + counts.quarantined_files)
        if is_part:
            more = " and more in unreadable files" if counts.quarantined_files else ""
            told += f"; {count_text(counts.quarantined_rows, 'row')}{more} could not be read"
        counted: dict[str, object] = {name: count for name, count in counts.model_dump().items() if count}
        if counts.quarantined_files:  # the number of rows in unreadable parts of files is unknown
            counted |= {name: f"at least {getattr(counts, name):,}" for name in ("rows", "quarantined_rows")}
        did = self.notes[:1] if self.appended else []
        return dataset_card(
            "Import",
            [self.dataset],
            {"imported": self.dataset},
            verdict="fair" if is_part else "good",
            word="Imported in part" if is_part else "Imported",
            sentence=f"{told}.",
            facts={
                "Dataset": self.dataset,
                "Observation space": self.observation_space or "not known",
                "Action space": self.action_space or "not known",
                **({"Replaces": self.replaced} if self.replaced else {}),
                **({"Appended": did[0]} if did else {}),
                **({"Not read, and why": self.quarantine} if self.quarantine else {}),
            },
            warnings=self.warnings,
            notes=self.recognised,
            details={name.replace("_", " ").capitalize(): count for name, count in counted.items()},
        )


def result_of(dataset: Dataset, *, replaced: str | None = None, reused: bool = False) -> ImportResult:
    """What the manifest of an import says of it."""
    spaces = {"observation_space": dataset.observation_space, "action_space": dataset.action_space}
    texts = {name: None if space is None else str(space) for name, space in spaces.items()}
    return ImportResult(dataset=dataset.ref, **{**texts, **dataset.manifest.report}, replaced=replaced, reused=reused)
