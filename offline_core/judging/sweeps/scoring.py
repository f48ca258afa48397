"""What the runs of a sweep are compared by: what their trainings played or lost, or what a log says of their policies."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from offline_core.data.datasets.dataset import Dataset, open_committed
from offline_core.data.datasets.dataset_card import splitting
from offline_core.data.datasets.held_out import held_out_beside
from offline_core.data.datasets.manifest import Parent
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.result import SELECT, Candidate
from offline_core.judging.estimation.contenders import MOST, Contender, contenders_of, model_named
from offline_core.judging.sweeps.config import Score, SweepConfig
from offline_core.judging.sweeps.result import FailedRun, SweptRun
from offline_core.judging.sweeps.runs import PlannedRun, check_runs
from offline_core.learning.result import TrainingResult
from offline_core.policies.lineage import lineage
from offline_core.policies.manifest import find_policy
from offline_core.runtime.config import without_defaults

if TYPE_CHECKING:
    from offline_core.judging.decisions.judging import Held
    from offline_core.judging.decisions.sides import Side


LEAST_RESAMPLES = 10
"""Resamples of each difference's interval; few, as scores go by values and standard errors, and nothing here reads it."""


@dataclass
class LogEstimates:
    """What a log says of policies: the same numbers, and the same doubts, as where `decide` ranks them.

    The log is read once for all policies that come together, `MOST` at a time. What it says of one does not depend on the
    others, so it is kept; only the scores are of all that are asked for.
    """

    config: DecisionConfig
    log: Dataset
    folder: Location
    """Where a model of what acted is stored, if nothing says how probable the recorded actions were."""
    model: Contender | None
    """The policy that acted, if it was named."""
    _held: dict[str, Held] = field(default_factory=dict)
    """What the log says of each policy so far, by fingerprint."""

    @classmethod
    def of(cls, config: SweepConfig, log: Dataset, folder: Location) -> LogEstimates:
        """Estimate from the log with the parameters of a sweep.

        Raises:
            CheckpointError: There is no policy where `estimate.behaviour` says.
        """
        model = model_named(config.estimate.behaviour, log)
        changed = {"behaviour": None if model is None else model.uri, "resamples": LEAST_RESAMPLES}
        values = {
            "estimate": config.estimate.model_copy(update=changed),
            "min_overlap": config.min_overlap,
            "seed": config.seed,
            "examine_updates": 0,
        }
        return cls(DecisionConfig().model_copy(update=values), log, folder, model)

    @property
    def identity(self) -> dict[str, object]:
        """All that decides the scores, but for the policies and `parents`."""
        estimate = without_defaults(self.config.estimate, exclude={"behaviour", "resamples"})
        told: dict[str, object] = {"estimate": estimate, "min_overlap": self.config.min_overlap}
        return told | {"behaviour": None if self.model is None else self.model.fingerprint}

    @property
    def parents(self) -> list[Parent]:
        """What the scores are made from, but for the policies."""
        return [self.log.parent_entry, *([] if self.model is None else [self.model.parent])]

    @functools.cached_property
    def side(self) -> Side:
        """The log, with a model of what acted: it is fitted now if it is needed and not there.

        Raises:
            DataError: The log is not what it has to be, or has too few episodes for a model of what acted.
        """
        from offline_core.judging.decisions.sides import Side, behaviour_of  # they need Torch
        from offline_core.policies.checkpoint import load_policy

        acted = behaviour_of(self.config, self.log, self.folder)
        policy = None if acted is None else load_policy(acted, None if self.model is None else self.model.manifest)
        history = lineage(self.log.location.uri, self.log.manifest.version)
        return Side(SELECT, self.log, self.config, history, policy, None)

    @property
    def recorded(self) -> float:
        """Mean discounted return of the log, once a policy was held against it."""
        return next(iter(self._held.values())).recorded

    def scored(self, checkpoints: Sequence[str]) -> list[Candidate]:
        """What the log says of each policy, with the scores that they have among each other.

        Raises:
            DataError, LearningError: The log is not what it has to be, or a Q function grew beyond every number.
        """
        from offline_core.judging.decisions.judging import held_against, scored  # it needs Torch

        fingerprints = [find_policy(uri)[1].fingerprint for uri in checkpoints]
        new = {key: uri for key, uri in zip(fingerprints, checkpoints, strict=True) if key not in self._held}
        policies = [*new.values()]
        for begin in range(0, len(policies), MOST):
            held = held_against(self.side, contenders_of(policies[begin : begin + MOST], self.log))
            self._held |= {one.candidate.fingerprint: one for one in held}
        ranking = scored([self._held[key] for key in dict.fromkeys(fingerprints)])
        by_fingerprint = {candidate.fingerprint: candidate for candidate in ranking}
        return [by_fingerprint[key] for key in fingerprints]


@dataclass(frozen=True, slots=True)
class Scoring:
    """How trained policies are scored."""

    score: Score
    estimates: LogEstimates | None
    """What a log says of the policies; None if the score is of the training itself."""

    def check(self, asked: Sequence[PlannedRun]) -> None:
        """Check that policies of these settings can be scored so.

        Raises:
            ConfigError: They cannot be estimated from the data.
        """
        if (estimates := self.estimates) is not None:
            from offline_core.judging.decisions.work import check  # here, for what is reused needs no Torch

            policies = {planned.setting.name: planned.run.networks().policy for planned in asked}
            check(estimates.config, estimates.log, policies, estimates.model)

    def begin(self) -> None:
        """Fit what scores need before anything is trained, so that it fails early.

        Raises:
            DataError: The data to estimate from has too few episodes.
        """
        if self.estimates is not None:
            _ = self.estimates.side

    def swept(self, runs: Sequence[PlannedRun], outcomes: Sequence[TrainingResult | FailedRun]) -> list[SweptRun | FailedRun]:
        """Score all that were trained, together: what a log says of one policy counts by what it says of the others.

        Arguments:
            outcomes: of each run.
        """
        trained = [(run, result) for run, result in zip(runs, outcomes, strict=True) if isinstance(result, TrainingResult)]
        scores: list[tuple[float, str | None]]
        if self.estimates is None:
            scores = [(self._of_training(result), None) for _, result in trained]
        else:
            ranked = self.estimates.scored([result.checkpoint for _, result in trained])
            reasons = [next(iter(each.reasons), None) for each in ranked]
            scores = [(self.estimates.recorded + (each.score or 0.0), why) for each, why in zip(ranked, reasons, strict=True)]
        swept = iter([self._run(run, result, *score) for (run, result), score in zip(trained, scores, strict=True)])
        return [outcome if isinstance(outcome, FailedRun) else next(swept) for outcome in outcomes]

    def _of_training(self, result: TrainingResult) -> float:
        match self.score:
            case "last_return":
                return result.curve[-1][1]
            case "best_return":
                return result.metrics["episode_return_mean"]
        return min(loss for _, loss in result.held_out_losses)

    def _run(self, run: PlannedRun, result: TrainingResult, score: float, reason: str | None) -> SweptRun:
        return SweptRun(
            seed=run.seed,
            checkpoint=result.last_checkpoint if self.score == "last_return" else result.checkpoint,
            score=score,
            reason=reason,
            curve=result.curve or result.held_out_losses,
            updates=result.updates,
            seconds=result.seconds,
        )


def scoring_of(config: SweepConfig, asked: Sequence[PlannedRun], output: str) -> Scoring:
    """Return how runs are scored, `auto` decided.

    Raises:
        ConfigError: There is nothing to score them by.
        CheckpointError: There is no policy where `estimate.behaviour` says.
        DataError: The data to estimate from cannot be opened, or is of another format: import it first.
    """
    score, log_uri = score_of(config, asked), config.judged_on
    if score != "estimate" or log_uri is None:
        return Scoring(score, None)
    return Scoring(score, LogEstimates.of(config, open_committed(log_uri), Location.of(output)))


def score_of(config: SweepConfig, asked: Sequence[PlannedRun]) -> Score:
    """Return what all of these runs can be compared by.

    Raises:
        ConfigError: There is no score that all runs have.
    """
    order: tuple[Score, ...] = ("last_return", "held_out_loss", "estimate") if config.score == "auto" else (config.score,)
    reasons: dict[Score, str] = {}
    for score in order:
        if (reason := _not_scored(score, asked, config.judged_on)) is None:
            return score
        reasons[score] = reason
    why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    data = asked[0].run.dataset
    held_out = held_out_beside(data)
    if "estimate" not in reasons:
        said = ""
    elif held_out is not None:
        said = f" To estimate from what was held out: estimate_on={held_out}."
    else:
        side = f"estimate_on={data.uri}-split/held_out"
        said = f" Split first ({splitting(data)}), sweep its train side, and estimate from the other: {side}."
    raise ConfigError(f"There is nothing to compare the runs by ({why}).{said}")


def _not_scored(score: Score, asked: Sequence[PlannedRun], log_uri: str | None) -> str | None:
    """Why runs do not have this score; None if they do. Only a held-out loss needs their networks to tell, and checks them."""
    match score:
        case "last_return" | "best_return":
            return _not_played(asked)
        case "held_out_loss":
            return _losses_do_not_compare(asked)
    return None if log_uri else "no data to estimate from is named (estimate_on, training.evaluation.held_out)"


def _not_played(asked: Sequence[PlannedRun]) -> str | None:
    if all(planned.run.played_in is not None for planned in asked):
        return None
    return "the policy is not played (training.evaluation.environment, training.evaluation.play)"


def _losses_do_not_compare(asked: Sequence[PlannedRun]) -> str | None:
    runs = [planned.run for planned in asked]
    if any(run.played_in is not None for run in runs):
        return "the policy is played, so the best one is not that of the lowest loss (training.evaluation.play)"
    if any(run.held_out is None for run in runs):
        return "no data is held out (training.evaluation.held_out)"
    check_runs(asked)
    if other := next((run for run in runs if not run.algorithm.loss_compares), None):
        return f"the losses of {other.config.algorithm} depend on values that are learned, too"
    losses = {(str(run.config.algorithm), str(run.config.chosen)) for run in runs}
    return None if len(losses) == 1 else "the settings have different losses"
