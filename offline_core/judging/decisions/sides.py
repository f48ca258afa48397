"""The two sides of a decision's log, and what each says of a candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from offline_core.data.curation.condition import Condition
from offline_core.data.curation.config import SplitConfig
from offline_core.data.curation.observed import as_series, step_words
from offline_core.data.curation.pieces import EPISODE, step_frame
from offline_core.data.datasets.dataset import Dataset, DatasetRef
from offline_core.data.episodes import columns
from offline_core.data.episodes.batch import step_column
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.judging.decisions.comparison import compare
from offline_core.judging.decisions.config import DecisionConfig, Guardrail
from offline_core.judging.decisions.result import MODEL, Difference
from offline_core.judging.estimation.behaviour import model_of_behaviour
from offline_core.judging.estimation.clones import halved
from offline_core.judging.estimation.config import EstimateConfig, Method
from offline_core.judging.estimation.evidence import Evidence, gather
from offline_core.judging.estimation.logged import has_probabilities
from offline_core.judging.estimation.result import source_name
from offline_core.judging.estimation.rule import never_met
from offline_core.judging.estimation.target import TargetPolicy
from offline_core.judging.estimation.trajectories import Trajectories, spooled
from offline_core.policies.lineage import Lineage, lineage
from offline_core.policies.policy import Policy
from offline_core.runtime.seeding import derive_seed


@dataclass(frozen=True)
class Side:
    """One side of the log."""

    name: str
    dataset: Dataset
    config: DecisionConfig
    history: Lineage
    behaviour: Policy | None
    today: TargetPolicy | None
    """What runs today; None if that is what the log recorded."""

    def evidence(
        self, policies: Sequence[TargetPolicy], methods: Sequence[Method], *, rewards: np.ndarray | None = None
    ) -> Evidence:
        """What this side says of each policy."""
        estimate = self.config.estimate.model_copy(update={"methods": [*methods]})
        seed = derive_seed(self.config.seed, "decide", self.name)
        return gather(estimate, policies, self.behaviour, self.dataset, history=self.history, seed=seed, rewards=rewards)

    def difference(
        self, candidate: Trajectories, today: Trajectories | None, *, beyond: float, with_tail: bool = False
    ) -> Difference:
        estimate: EstimateConfig = self.config.estimate
        return compare(
            candidate,
            today,
            beyond=beyond,
            risk=self.config.risk / self.config.finalists,
            confidence=estimate.confidence,
            resamples=estimate.resamples,
            seed=derive_seed(self.config.seed, "decide", self.name, "resamples"),
            with_tail=with_tail,
        )


def sides_of(config: DecisionConfig, source: Dataset, folder: Location) -> tuple[DatasetRef, DatasetRef]:
    """(the episodes of a log that select, the episodes that judge); both are stored in this folder.

    Raises:
        ConfigError, DataError: The log has too few episodes for two sides, or not the column that divides it.
    """
    halves = SplitConfig(held_out_fraction=config.judge_share, by=config.by, seed=config.seed)
    return halved(source, halves, folder, stage="decide")


def is_recorded(config: DecisionConfig, log: Dataset) -> bool:
    """Whether the log itself says how probable its actions were, and no model of what acted is named instead."""
    return config.estimate.behaviour is None and has_probabilities(log)


def behaviour_of(config: DecisionConfig, log: Dataset, folder: Location) -> str | None:
    """Checkpoint of a model of what acted: the one that is named, else a clone that is fitted now, below this folder.

    Where the probabilities were recorded, a clone examines them; None if none is asked for.

    Raises:
        ConfigError, DataError: See `sides_of`; the clone is fitted to one side, and the other stops it.
    """
    updates = config.examine_updates if is_recorded(config, log) else config.clone_updates
    if config.estimate.behaviour is not None or not updates:
        return config.estimate.behaviour
    fitted, held_out = sides_of(config, log, folder)
    return model_of_behaviour(fitted, held_out, folder.child(MODEL).uri, updates=updates, seed=config.seed)


def paid(dataset: Dataset, guardrail: Guardrail) -> np.ndarray:
    """(N,) what each step of a dataset is paid by a guardrail.

    Raises:
        ConfigError: The guardrail cannot be computed from the columns of a step.
    """
    payments, step = spooled(dataset.ref.steps), 0
    try:
        condition = Condition.sql(guardrail.expression)
        if never := never_met(guardrail.expression, dataset.manifest.input_columns):
            condition.refuse(f"{never}.")
        history = lineage(dataset.location.uri, dataset.manifest.version)
        names = {column: source_name(history, column) for column in (columns.ACTIONS, columns.REWARDS)}
        for group in dataset.row_groups():
            if episodes := group.episodes():
                words = step_words(episodes, dataset, action=names[columns.ACTIONS])
                rewards = step_column(episodes, columns.REWARDS)
                if names[columns.REWARDS] and isinstance(rewards, np.ndarray):
                    words[names[columns.REWARDS]] = as_series(rewards)
                rows = step_frame(episodes, condition, words)
                payments[step : step + len(rows)] = condition.numbers(rows, within=EPISODE)
                step += len(rows)
    except ConfigError as error:
        raise ConfigError(f"Guardrail {guardrail.name!r}: {error}") from error
    return payments
