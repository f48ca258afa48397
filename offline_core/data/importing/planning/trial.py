"""Import the rows of a sample in memory, by the import's own code: nothing that a plan says comes from elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from offline_core.data.datasets.statistics import Statistics
from offline_core.data.episodes import Episode, columns
from offline_core.data.episodes.spaces import StoredSpaces
from offline_core.data.formats.sources.first_rows import FirstRows
from offline_core.data.formats.sources.listing import Listing
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.episode_files import EpisodeFiles, check_for_episodes
from offline_core.data.importing.inference import inferred_spaces
from offline_core.data.importing.notes import notes_on
from offline_core.data.importing.report import Counts, Findings
from offline_core.data.importing.resolving import preparation_of
from offline_core.data.importing.step_import import StepImport
from offline_core.data.importing.stray_actions import ActionCounts
from offline_core.data.store.location import Location
from offline_core.errors import OfflineError

MAX_REFUSED_SHARE = 0.05
"""More of the rows are not left out without a decision, and more wrong values of a column are a mistake of the column."""
NOWHERE = Location.on_disk(".")
"""Nothing is written."""


@dataclass
class Trial:
    """What an import of the sample gives."""

    config: ImportConfig
    episodes: list[Episode] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    findings: Findings = field(default_factory=lambda: Findings("quarantine"))
    order: str = ""
    spaces: StoredSpaces = (None, None)
    error: OfflineError | None = None
    """Why the import stops, whatever is done with rows that cannot be read."""

    @property
    def wrong_columns(self) -> dict[str, int]:
        """How many rows have a value that is no probability, by the columns of probabilities that are mistaken as a whole."""
        probabilities = [self.config.mapping.get(role) for role in (columns.ACTION_PROB, columns.ACTION_LOGP)]
        names = (failure.error.column for failure in self.findings.unreadable)
        rows = Counter(column for column in names if column is not None and column in probabilities)
        return {column: count for column, count in rows.items() if count > MAX_REFUSED_SHARE * self.counts.rows}


def tried(readers: Sequence[FirstRows], config: ImportConfig) -> Trial:
    """Import these rows in memory, listing what cannot be read."""
    config = config.model_copy(update={"unreadable": "quarantine", "partitions": 1, "engine": "local"})
    trial = Trial(config)
    try:
        preparation = preparation_of(config, readers, Listing())
        trial.spaces = preparation.spaces
        job = StepImport.of(readers, config, NOWHERE, NOWHERE, Listing(), preparation)
        trial.findings.note(*job.notes)
        trial.order, trial.spaces = job.order, job.preparation.spaces
        for episodes, counts in job.assembled(trial.findings):
            trial.episodes += episodes
            trial.counts += counts
    except OfflineError as error:
        trial.error = error
    return _finished(trial)


def tried_files(files: Sequence[Location], config: ImportConfig) -> Trial:
    """Import the first row group of files that hold episodes, listing what cannot be read."""
    trial = Trial(config, order="episodes")
    try:
        check_for_episodes(config)
        job = EpisodeFiles(files, config, trial.findings, groups_per_file=1)
        trial.spaces = job.spaces
        for episodes, counts in job.read():
            trial.episodes += episodes
            trial.counts += counts
    except OfflineError as error:
        trial.error = error
    return _finished(trial)


def _finished(trial: Trial) -> Trial:
    """Return the trial with the counts, spaces and notes of an import."""
    trial.counts.episodes, trial.counts.steps = len(trial.episodes), sum(map(len, trial.episodes))
    trial.counts = trial.counts.with_findings(trial.findings)
    if not trial.episodes:
        return trial
    statistics = Statistics.of_episodes([trial.episodes])
    actions = ActionCounts()
    actions.add(trial.episodes)
    trial.spaces, doubts = inferred_spaces(trial.spaces, trial.episodes[0], statistics, actions)
    trial.findings.note(*notes_on(trial.counts, statistics, trial.config.mapping.get(columns.REWARDS)), *doubts)
    return trial


def prepared(readers: Sequence[FirstRows], config: ImportConfig) -> pa.Table | None:
    """The good rows in the import's columns; None if there are none, or the parameters do not fit."""
    try:
        preparation = preparation_of(config, readers, Listing())
        tables = [table for table, _ in preparation.of_readers(dict(enumerate(readers)), Findings("quarantine"))]
    except OfflineError:
        return None
    return pa.concat_tables(tables) if tables else None


def lengths(trial: Trial) -> np.ndarray:
    """(E,) steps of each episode."""
    return np.array([len(episode) for episode in trial.episodes], np.int64)
