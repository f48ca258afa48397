"""Trains many settings with many seeds, and compares what they came to."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic_core import to_jsonable_python

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.held_out import held_out_beside
from offline_core.data.datasets.manifest import Operation, Parent
from offline_core.data.datasets.result_cache import StoredResult
from offline_core.data.store.location import Location
from offline_core.errors import SweepError
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.result import FailedRun, SweepResult, SweptRun, SweptSetting, sign_of
from offline_core.judging.sweeps.runs import PlannedRun, asked_runs, check_runs, planned_runs
from offline_core.judging.sweeps.scheduling import Outcome, parallel_runs, run_all
from offline_core.judging.sweeps.scoring import Scoring, score_of, scoring_of
from offline_core.judging.sweeps.search import Search
from offline_core.judging.sweeps.settings import settings_of
from offline_core.judging.sweeps.statistics import expected_best, interquartile_mean, interval, learning_curve
from offline_core.policies.manifest import fingerprint_of
from offline_core.runtime.config import without_defaults
from offline_core.runtime.ray_session import ray_session
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.stage import DATASET, VERSION, Made, output, stage

log = logging.getLogger(__name__)


def enforce(result: SweepResult, config: SweepConfig) -> None:
    """Check that all runs were trained.

    Raises:
        SweepError: Some failed; it names them.
    """
    if result.failures:
        number = len(result.failures) + sum(len(setting.runs) for setting in result.settings)
        raise sweep_error(result.failures, number)


@stage(
    "sweep",
    version=7,
    after="fine_tune",
    arguments=(DATASET, output("runs/sweep", "Folder for all runs and their comparison."), VERSION),
    hint="Example: -s 'grid={algorithm: [bc, marwil]}' -s seeds=5.",
    run_name="sweep on {dataset}, seed {config.seed}",
    plan="plans.sweeping:plan_sweep",
    gate=enforce,
    short=("grid", "seeds", "score", "training.algorithm"),
    is_alone=True,
)
def sweep(config: SweepConfig, *, dataset: str, output: str, version: int | None = None) -> Made[SweepResult]:
    """Train many settings with many seeds, and compare them.

    A run is in `<output>/runs/<digest of the setting>/<seed>`, and what `train` makes of the same parameters, however
    many train at once. A finished one is reused, an unfinished one resumes; so a sweep that is killed, or gets more settings
    or seeds, makes only what is missing. A run that fails ends no other one: see `enforce`. A search goes on by itself until
    all samples are tried, and is resumed likewise. Runs that are compared by an estimate are judged once all are trained, or
    all of a search's round.

    Arguments:
        dataset: URI of a dataset, or of what `training.data` says how to read.
        output: URI of a folder, created if need be.
        version: of the dataset, the latest if None; the same for all runs.

    Raises:
        ConfigError: A setting is invalid, does not fit the data, runs cannot be compared, or Optuna is not installed:
            before anything starts. Or a search came upon values that cannot be.
        StorageError, DataError: The dataset cannot be opened, or nothing can be estimated from the data that was named for it.
        LearningError: A Q function of an estimate grew beyond every number.
        SweepError: All runs failed.
        BusyError: Another sweep is writing there.
    """
    settings = settings_of(config)
    search = Search(config) if config.search == "optuna" else None
    with contextlib.ExitStack() as stack:
        if any(setting.config.data.reads_by_ray for setting in settings) or _joins_cluster(config):
            stack.enter_context(ray_session())
        asked = asked_runs(settings, dataset=dataset, output=output, version=version)
        scoring = scoring_of(config, asked, output)
        runs = planned_runs(config, asked)
        shows = all(planned.run.changes_show for planned in asked)
        data = asked[0].run.dataset
        operation, parents = _identifying(config, runs, scoring)
        begun = yield StoredResult(
            SweepResult,
            Location.of(output),
            parents,
            fingerprint_of,
            outputs=lambda result: {run.checkpoint for setting in result.settings for run in setting.runs},
            operation=operation,
            may_reuse=shows,
            is_whole=lambda result: not result.failures,
            starts_itself=True,
        )
        check_runs(asked)
        scoring.check(asked)
        begun.start()
        start = time.time()
        scoring.begin()
        if search is not None and parallel_runs(config.parallel, len(runs), asked) > 1:
            stack.enter_context(ray_session())  # one for all that it goes on to
        trained = _trained(config, runs, asked)
        outcomes = scoring.swept(runs, trained)
        while search is not None:
            scores, minimize = scores_of(runs, outcomes), sign_of(scoring.score) < 0
            if not (found := search.next([planned.setting for planned in asked], scores, minimize=minimize)):
                break
            more = asked_runs(found, dataset=data.uri, output=output, version=data.version or None)
            asked += more
            score_of(config.model_copy(update={"score": scoring.score}), asked)
            check_runs(more)
            scoring.check(more)
            runs = planned_runs(config, asked)
            trained += _trained(config, runs[len(trained) :], asked)
            outcomes = scoring.swept(runs, trained)
        result = summary(
            config,
            runs,
            outcomes,
            scoring.score,
            dataset=data,
            estimated_on=None if scoring.estimates is None else scoring.estimates.log.ref,
            seconds=time.time() - start,
        )
    best = result.settings[0]
    log.info("Best of %s settings: %s, %s %.4g", len(result.settings), best.name, result.score, best.interquartile_mean)
    return result


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
    sign = sign_of(score)
    settings = [_swept(config, folder, made) for folder, made in _by_setting(runs, outcomes).items()]
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
    return {
        made[0][0].setting.digest: float(interquartile_mean(np.array([swept.score for _, swept in made])))
        for made in _by_setting(runs, outcomes).values()
    }


def _by_setting(
    runs: Sequence[PlannedRun], outcomes: Sequence[SweptRun | FailedRun]
) -> dict[str, list[tuple[PlannedRun, SweptRun]]]:
    """The trained runs of each setting, by the folder that they share."""
    by_folder: dict[str, list[tuple[PlannedRun, SweptRun]]] = {}
    for run, outcome in zip(runs, outcomes, strict=True):
        if isinstance(outcome, SweptRun):
            by_folder.setdefault(Location.of(run.run.output).parent.uri, []).append((run, outcome))
    return by_folder


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
    low, high = interval(scores, **drawn) or (None, None)
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


def _trained(config: SweepConfig, runs: Sequence[PlannedRun], asked: Sequence[PlannedRun]) -> list[Outcome]:
    """Train what is not done."""
    done = {number: trained for number, run in enumerate(runs) if (trained := run.done())}
    parallel = parallel_runs(config.parallel, len(runs) - len(done), asked)
    log.info(
        "%s settings with %s seeds: %s of %s runs are done; %s at once",
        f"{len(runs) // len(config.all_seeds):,}",
        f"{len(config.all_seeds):,}",
        f"{len(done):,}",
        f"{len(runs):,}",
        f"{parallel:,}",
    )
    return run_all(runs, done, parallel)


def _joins_cluster(config: SweepConfig) -> bool:
    """Whether the number of CPUs is that of a cluster."""
    return config.parallel == "auto" and bool(os.environ.get("RAY_ADDRESS"))


def _identifying(config: SweepConfig, runs: Sequence[PlannedRun], scoring: Scoring) -> tuple[Operation, list[Parent]]:
    """(all that decides the result, what it is made from); a search goes on by its parameters, and by where it begins."""
    searched = {"search", "random", "samples"} if config.search != "random" else set()
    told = without_defaults(config, include={"seed", "confidence", "resamples", *searched})
    told |= {"score": scoring.score, "runs": [run.run.identity for run in runs]}
    parents = [runs[0].run.source.origin.parent]
    if scoring.estimates is not None:
        told |= scoring.estimates.identity
        parents += scoring.estimates.parents
    return Operation(name=sweep.name, version=sweep.version, config=told), parents
