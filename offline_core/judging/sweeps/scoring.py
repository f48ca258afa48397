"""What the runs of a sweep are compared by: what their trainings played or lost, or what a log says of their policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offline_core.data.curation.split import held_out_beside
from offline_core.data.datasets.dataset import open_committed
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.judging.sweeps.config import Score, SweepConfig
from offline_core.judging.sweeps.estimates import LogEstimates
from offline_core.judging.sweeps.result import FailedRun, SweptRun
from offline_core.judging.sweeps.runs import PlannedRun, check_runs
from offline_core.judging.sweeps.settings import Setting
from offline_core.learning.result import TrainingResult
from offline_core.learning.run import Run
from offline_core.runtime.reporting.card import command


@dataclass(frozen=True, slots=True)
class Scoring:
    """How trained policies are scored."""

    score: Score
    estimates: LogEstimates | None
    """None: the score is of the training itself."""

    def check(self, settings: Sequence[Setting], runs: Sequence[Run]) -> None:
        """Check that policies of these settings can be scored so.

        Raises:
            ConfigError: They cannot be estimated from the data.
        """
        if self.estimates is not None:
            named = zip(settings, runs, strict=True)
            self.estimates.check({setting.name: run.networks().policy for setting, run in named})

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
            scores = [(each.baseline + each.score, next(iter(each.reasons), None)) for each in ranked]
        swept = iter([self._run(*each, *score) for each, score in zip(trained, scores, strict=True)])
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


def scoring_of(config: SweepConfig, settings: Sequence[Setting], runs: Sequence[Run], output: str) -> Scoring:
    """Return how runs are scored, `auto` decided.

    Raises:
        ConfigError: There is nothing to score them by.
        CheckpointError: There is no policy where `estimate.behaviour` says.
        DataError: The data to estimate from cannot be opened, or is of another format: import it first.
    """
    score = score_of(config, settings, runs)
    place = _place(config)
    if score != "estimate" or place is None:
        return Scoring(score, None)
    return Scoring(score, LogEstimates.of(config, open_committed(place), Location.of(output)))


def score_of(config: SweepConfig, settings: Sequence[Setting], runs: Sequence[Run]) -> Score:
    """Return what all of these runs can be compared by.

    Raises:
        ConfigError: There is nothing.
    """
    order: tuple[Score, ...] = ("last_return", "held_out_loss", "estimate") if config.score == "auto" else (config.score,)
    reasons: dict[Score, str] = {}
    for score in order:
        if (reason := _not_scored(score, settings, runs, _place(config))) is None:
            return score
        reasons[score] = reason
    why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    held_out = held_out_beside(runs[0].dataset)
    if "estimate" not in reasons:
        said = ""
    elif held_out is not None:
        said = f" To estimate from what was held out: -s estimate_on={held_out}."
    else:
        first = command("offline", "split", runs[0].dataset.uri)
        said = f" Split first ({first}), sweep its train side, and estimate from the other: -s estimate_on=runs/split/held_out."
    raise ConfigError(f"There is nothing to compare the runs by ({why}).{said}")


def _place(config: SweepConfig) -> str | None:
    """URI of the data to estimate from."""
    return config.estimate_on or config.training.evaluation.held_out


def _not_scored(score: Score, settings: Sequence[Setting], runs: Sequence[Run], place: str | None) -> str | None:
    """Why runs have no such score; only a held-out loss needs their networks to tell, and so checks them first."""
    match score:
        case "last_return" | "best_return":
            return _not_played(runs)
        case "held_out_loss":
            return _losses_do_not_compare(settings, runs)
    return None if place else "no data to estimate from is named (estimate_on, training.evaluation.held_out)"


def _not_played(runs: Sequence[Run]) -> str | None:
    if all(run.played_in is not None for run in runs):
        return None
    return "the policy is not played (training.evaluation.environment, training.evaluation.play)"


def _losses_do_not_compare(settings: Sequence[Setting], runs: Sequence[Run]) -> str | None:
    if any(run.played_in is not None for run in runs):
        return "the policy is played, so the best one is not that of the lowest loss (training.evaluation.play)"
    if any(run.held_out is None for run in runs):
        return "no data is held out (training.evaluation.held_out)"
    check_runs(settings, runs)
    if other := next((run for run in runs if not run.algorithm.loss_compares), None):
        return f"the losses of {other.config.algorithm} depend on values that are learned, too"
    losses = {(str(run.config.algorithm), str(run.config.chosen)) for run in runs}
    return None if len(losses) == 1 else "the settings have different losses"
