"""What the runs of a sweep came to, setting by setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic_core import to_jsonable_python

from offline_core.data.curation.split import held_out_beside
from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.store.location import Location
from offline_core.errors import SweepError
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.result import FailedRun, SweepResult, SweptRun, SweptSetting, sign_of
from offline_core.judging.sweeps.runs import PlannedRun
from offline_core.judging.sweeps.statistics import expected_best, interquartile_mean, interval, learning_curve
from offline_core.runtime.seeding import derive_seed


def summary(
    config: SweepConfig,
    runs: Sequence[PlannedRun],
    outcomes: Sequence[SweptRun | FailedRun],
    score: str,
    *,
    dataset: DatasetRef,
    estimated_on: DatasetRef | None,
    seconds: float,
) -> SweepResult:
    """Return the settings with at least one trained run, the best first.

    Arguments:
        outcomes: of each run.

    Raises:
        SweepError: All runs failed.
    """
    failures = [outcome for outcome in outcomes if isinstance(outcome, FailedRun)]
    if len(failures) == len(runs):
        raise sweep_error(failures, len(runs))
    by_folder: dict[str, list[tuple[PlannedRun, SweptRun]]] = {}
    for run, outcome in zip(runs, outcomes, strict=True):
        if isinstance(outcome, SweptRun):
            by_folder.setdefault(Location.of(run.run.output).parent.uri, []).append((run, outcome))
    sign = sign_of(score)
    settings = [_swept(config, folder, made) for folder, made in by_folder.items()]
    settings.sort(key=lambda setting: -sign * setting.interquartile_mean)  # of equals the first in the grid
    best = max(settings[0].runs, key=lambda run: sign * run.score)
    by_algorithm: dict[str, list[float]] = {}
    for setting in settings:
        by_algorithm.setdefault(setting.algorithm, []).extend(sign * score for score in setting.scores)
    return SweepResult(
        checkpoint=best.checkpoint,
        dataset=dataset,
        held_out=_unseen(config, dataset),
        estimated_on=estimated_on,
        score=score,
        settings=settings,
        expected_best={name: (sign * expected_best(np.array(scores))).tolist() for name, scores in by_algorithm.items()},
        failures=failures,
        warnings=[] if best.reason is None else [_unjudged(best)],
        confidence=config.confidence,
        seconds=seconds,
    )


def _unseen(config: SweepConfig, dataset: DatasetRef) -> str | None:
    """URI of the held-out side of the split, if the runs were not chosen by it."""
    chosen_by, held_out = config.judged_on, held_out_beside(dataset)
    return None if chosen_by is not None and Location.of(chosen_by).uri == held_out else held_out


def scores_of(runs: Sequence[PlannedRun], outcomes: Sequence[SweptRun | FailedRun]) -> dict[str, float]:
    """Return the interquartile mean of each setting with a trained run, by its digest."""
    found: dict[str, list[float]] = {}
    for run, outcome in zip(runs, outcomes, strict=True):
        if isinstance(outcome, SweptRun):
            found.setdefault(run.setting.digest, []).append(outcome.score)
    return {digest: float(interquartile_mean(np.array(scores))) for digest, scores in found.items()}


def sweep_error(failures: Sequence[FailedRun], runs: int) -> SweepError:
    """Return the error that names the runs that failed, of so many."""
    lines = "\n".join(f"  {failure}" for failure in failures)
    error = SweepError(
        f"{len(failures):,} of {runs:,} runs failed; call it again to try them once more, as the others are reused:\n{lines}"
    )
    error.may_pass = any(failure.may_pass for failure in failures)
    return error


def _unjudged(best: SweptRun) -> str:
    return (
        f"A decision on the log that the runs were estimated from would refuse the best one, {best.checkpoint}: {best.reason}. "
        "Its score is a guess: play it, or decide on another log."
    )


def _swept(config: SweepConfig, folder: str, made: Sequence[tuple[PlannedRun, SweptRun]]) -> SweptSetting:
    setting, runs = made[0][0].setting, [swept for _, swept in made]
    scores, seed = np.array([run.score for run in runs]), derive_seed(config.seed, "sweep", "resamples")
    drawn: dict[str, Any] = {"resamples": config.resamples, "confidence": config.confidence, "seed": seed}
    low, high = interval(interquartile_mean, scores, **drawn) or (None, None)
    return SweptSetting(
        name=setting.name,
        parameters=to_jsonable_python(setting.parameters, fallback=str),
        algorithm=str(setting.config.algorithm),
        folder=folder,
        runs=runs,
        mean=float(scores.mean()),
        interquartile_mean=float(interquartile_mean(scores)),
        low=low,
        high=high,
        curve=learning_curve([run.curve for run in runs], **drawn),
    )
