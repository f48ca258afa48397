"""Monitors a training run on the first learner: metrics, evaluations, states, and when to stop."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import safetensors.torch
import torch

from offline_core.data.datasets.manifest import Operation, Parent, identity_of
from offline_core.data.store.location import Location
from offline_core.errors import LearningError
from offline_core.learning.checkpoints import BEST, Checkpoints
from offline_core.learning.evaluations import Evaluation, Evaluations, Stamp, Weights, snapshot
from offline_core.learning.experience import Experience, Seconds
from offline_core.learning.learner import Learner
from offline_core.learning.metrics import LOSS, RETURN, MetricsLog, is_report, progress_of
from offline_core.learning.prelearner.mapper import ReadSoFar
from offline_core.learning.state import Metrics, States, TrainingState, below
from offline_core.learning.trainer_config import EvaluationsConfig, KeepConfig
from offline_core.policies.evaluation import FOLLOWED
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.progress import progress

log = logging.getLogger(__name__)

_EVALUATING, _BEST_WEIGHTS, _BEST_NETWORKS = "evaluating.", "best.", "best networks."
"""Prefixes of tensors in a state."""


@dataclass(frozen=True, slots=True)
class TrainingGoal:
    """One training, as it is monitored: where it goes, what it is made from, and what it is measured by."""

    folder: Location
    operation: Operation
    parents: list[Parent]
    environment: EnvironmentSpec | None
    """Environment of the policy, if it is known."""
    played_in: EnvironmentSpec | None
    """Where evaluations play; None: there are none."""
    evaluation: EvaluationsConfig
    target_return: float | None
    seed: int
    what: str = "train"
    """A verb, for the progress bar."""
    keep: KeepConfig | None = None
    snapshots_at_returns: Sequence[float] = ()
    """Save the first policy whose mean return reaches one of these."""
    roll_back_after: int | None = None
    """Go on from the best networks after so many evaluations in a row below that of the first policy. None: never."""

    @property
    def identity(self) -> str:
        """States of runs with another one are not used."""
        return identity_of(self.operation, self.parents)


def snapshot_name(reached: float) -> str:
    """Return the name of the first checkpoint that reached a return, below the folder of its training."""
    return f"snapshots/{reached:g}"


class TrainingMonitor:
    """Reports on one run at each pause, evaluates the policy, saves states, and says when to stop.

    Evaluations may play beside the training, which runs a little ahead of them. The result does not depend on how far: the
    best policy is the first that reached the target (else the best of all), and the run ends there. Where the policy is not
    played, the best one has the lowest held-out loss, if losses of different updates can be compared, else it is the last one.

    Arguments:
        evaluations: None where the policy is not played.
        held_out_loss: of the present policy; None if no data is held out.
        state: the run resumes from it, with these tensors.
    """

    def __init__(
        self,
        goal: TrainingGoal,
        learner: Learner,
        experience: Experience,
        evaluations: Evaluations | None,
        held_out_loss: Callable[[], float] | None,
        states: States,
        metrics: MetricsLog,
        last_state: tuple[TrainingState, dict[str, torch.Tensor]] | None,
    ) -> None:
        self.goal = goal
        self.learner = learner
        self.experience = experience
        self.evaluations = evaluations
        self.held_out_loss = held_out_loss
        self.checkpoints = Checkpoints(
            learner.networks.policy, goal.folder, goal.operation, goal.environment, list(goal.parents)
        )
        self.states = states
        self.metrics = metrics
        self.reached_target = False
        self.last_weights: Weights = {}
        self.last_metrics: Metrics = {}
        self._best_weights: Weights = {}
        self._best_networks: dict[str, torch.Tensor] = {}
        if last_state is None:
            states.clear()
            self.checkpoints.clear_series()
        state, tensors = last_state or (TrainingState(), {})
        self.losses = self._recorded("loss")
        self._iteration_ends: list[int] = [record["updates"] for record in metrics.records if is_report(record)]
        self.curve, self.held_out = self._recorded(RETURN), self._recorded(LOSS)
        self.best, self.training_metrics = state.best, state.metrics
        self._best_updates = state.best_updates
        self.snapshots, self.rollbacks = list(state.snapshots), state.rollbacks
        self.progress, self.updates, self.steps = state.progress, state.updates, state.steps
        """Of the run's result: of the last report, or of the evaluation that ended the run."""
        self.ended = evaluations is None and self._out_of_patience()
        """The run is over: an evaluation reached the target, or patience ran out."""
        self._made_at = self.began_at = time.time()
        self.began_with_steps = learner.steps
        """When the first batch could be drawn, and what was learned from before that."""
        self._state_seconds = state.seconds
        self._seconds_before = Seconds()
        self._read_before = ReadSoFar()
        self._iteration = state.iterations
        self.bar = progress(experience.total, what=goal.what, unit=experience.unit, began=state.progress)
        if last_state is not None:
            self._resume(state, tensors)

    def _resume(self, state: TrainingState, tensors: dict[str, torch.Tensor]) -> None:
        """Submit unfinished evaluations again, and put back the best policy of then: a later one may have been saved since."""
        for stamp in state.evaluating if self.evaluations is not None else ():
            assert self.evaluations is not None
            self.evaluations.submit(stamp, _weights(tensors, f"{_EVALUATING}{progress_of(stamp)}."))
        self._best_networks = below(tensors, _BEST_NETWORKS)
        self._best_weights = _weights(tensors, _BEST_WEIGHTS)
        if self._best_weights and self.best is not None:
            self.checkpoints.save(BEST, self._best_weights, self.best[1], updates=self._best_updates)

    @property
    def elapsed_seconds(self) -> float:
        """Seconds of all runs so far."""
        return self._state_seconds + time.time() - self._made_at

    def begin(self) -> None:
        """Say that the first batch can be drawn."""
        self.began_at, self.began_with_steps = time.time(), self.learner.steps

    def measure_first(self) -> None:
        """Measure an initial policy before the first update, as the result may be it and is never worse."""
        if self.evaluations is not None:
            self.evaluations.submit(self._stamp)
            self._collect(wait=True)
        elif self.held_out_loss is not None and self.learner.algorithm.loss_compares:
            self._measure_held_out()
            self._save_if_lowest()

    def advance(self) -> None:
        """Move the progress bar."""
        self.bar.to(progress_of(self._stamp))

    def pause(self, records: Sequence[tuple[int, Metrics]]) -> bool:
        """Report, evaluate and save after each iteration; True ends the run.

        Arguments:
            records: (updates, metrics) of the iteration, see `Learner.take_records`.
        """
        self.advance()
        for _, metrics in records:
            if any(not math.isfinite(value) for value in metrics.values()):
                return self.on_non_finite_loss(metrics)
        self._iteration += 1
        self._report(records)
        if self.evaluations is not None:
            if self._evaluates:
                self.evaluations.submit(self._stamp)
        elif self._evaluates:
            self._save_if_lowest()
        if not self.experience.repeats:
            self._collect(wait=True)  # the state has to know the best policy
        kept = self._keep_present()
        if not self.ended:
            self._save()
        self.checkpoints.keep_only(kept)  # a run that is killed before goes on from a state that may need the others
        self._collect(wait=False)
        self.ended = self.ended or (self.evaluations is None and self._out_of_patience())
        return self.ended

    def on_non_finite_loss(self, metrics: Metrics) -> bool:
        """Raise an error for a NaN or infinite loss of the last batch; True, which ends the run, if it ended well before."""
        self._collect(wait=True)
        if self.ended:
            return True  # the policy reached the target before
        names = sorted(name for name, value in metrics.items() if not math.isfinite(value))
        file = self.checkpoints.folder.child("bad-batch.safetensors")
        file.write(safetensors.torch.save({name: tensor.contiguous() for name, tensor in self.learner.last_batch.items()}))
        raise LearningError(
            f"At update {self.learner.updates} {', '.join(names)} became NaN or infinite. The batch is at {file.uri}. Lower "
            "optimizer.learning_rate, or set optimizer.max_gradient_norm to clip gradients. If the policy plays, check that "
            "observations and rewards of the environment are finite."
        )

    def finish(self) -> None:
        """Evaluate the last policy, and wait for all evaluations."""
        if not self.ended or self.evaluations is None:
            self._measure_last()
            at = progress_of(self._stamp)
            if not self.last_weights or at not in {progress for progress, _ in self.curve}:
                self.last_weights = snapshot(self.learner.networks.policy)
                self.last_metrics = self._held_out_at(at)
            self._submit_last()
            self._collect(wait=True)
        self.checkpoints.keep_only(self._kept())

    def learned(self) -> dict[str, Any]:
        """Return the fields of a `LearnedResult`, once the run is over. If no policy was measured, the last is the best."""
        if self.best is None:
            self.checkpoints.save(BEST, self.last_weights, {}, updates=self.updates)
        return {
            "checkpoint": self.checkpoints.folder.child(BEST).uri,
            "metrics": {} if self.best is None else self.best[1],
            "target_return": self.goal.target_return,
            "reached_target": self.reached_target,
            "actions": self.goal.evaluation.actions,
            "updates": self.updates,
            "curve": self.curve,
            "seconds": self.elapsed_seconds,
        }

    @property
    def _stamp(self) -> Stamp:
        return {"updates": self.learner.updates, **self.experience.counts}

    def _measure_held_out(self) -> None:
        assert self.held_out_loss is not None
        stamp = self._stamp
        self.held_out.append((progress_of(stamp), self.held_out_loss()))
        self.metrics.add({**stamp, LOSS: self.held_out[-1][1]})

    def _measure_last(self) -> None:
        """Measure the held-out loss of the last policy where the interval left it out."""
        if self.held_out_loss is None or progress_of(self._stamp) in {progress for progress, _ in self.held_out}:
            return
        self._measure_held_out()
        if self.evaluations is None:
            self._save_if_lowest()
            self._keep_present()

    def _submit_last(self) -> None:
        """Evaluate the last policy where the interval left it out."""
        if self.evaluations is not None and progress_of(self._stamp) not in {
            *(progress for progress, _ in self.curve),
            *(progress_of(stamp) for stamp, _ in self.evaluations.pending),
        }:
            self.evaluations.submit(self._stamp)

    def _kept(self) -> set[int]:
        """Return the updates of the policies that stay, wherever the run turns out to end."""
        if self.goal.keep is None:
            return set()
        pending = [] if self.evaluations is None or self.ended else [stamp["updates"] for stamp, _ in self.evaluations.pending]
        scores = self.curve
        if self.evaluations is None:
            scores = [(updates, -loss) for updates, loss in self.held_out if self.learner.algorithm.loss_compares]
        return wanted(self.goal.keep, self._iteration_ends, scores, [*pending, self.updates])

    def _keep_present(self) -> set[int]:
        """Save the present policy if it stays; return the updates of all that do."""
        kept = self._kept()
        if self.updates in kept:
            weights = snapshot(self.learner.networks.policy)
            self.checkpoints.save_in_series(weights, self._held_out_at(self.updates), updates=self.updates)
        return kept

    def _held_out_at(self, updates: int) -> Metrics:
        losses = dict(self.held_out)
        return {LOSS: losses[updates]} if updates in losses else {}

    def _report(self, records: Sequence[tuple[int, Metrics]]) -> None:
        seconds = self.experience.seconds.since(self._seconds_before)
        self._seconds_before = replace(self.experience.seconds)
        steps, stamp = self.learner.steps - self.steps, self._stamp
        self.progress, self.updates, self.steps = progress_of(stamp), self.learner.updates, self.learner.steps
        lines: list[dict[str, Any]] = [{**stamp, "updates": updates, **metrics} for updates, metrics in records] or [stamp]
        lines[-1] |= {
            "iteration": self._iteration,
            "steps": self.steps,
            "update_seconds": seconds.update,
            "gather_seconds": seconds.gather,
            "data_wait_seconds": seconds.wait,
            "steps_per_second": steps / max(1e-9, seconds.update + seconds.gather + seconds.wait),
            **self._rates(steps, seconds),
        }
        if self.held_out_loss is not None and self._evaluates:
            lines[-1][LOSS] = self.held_out_loss()
            self.held_out.append((self.progress, lines[-1][LOSS]))
        self.losses += [(progress_of(line), line["loss"]) for line in lines if "loss" in line]
        if records:
            self.training_metrics = mean_metrics(records, since=max(self._iteration_ends, default=0))
        self._iteration_ends.append(self.updates)
        self.metrics.add(*lines)

    def _rates(self, steps: int, seconds: Seconds) -> dict[str, float]:
        """Return the steps/s of each layer, over the seconds that it worked in this iteration; idle layers have none."""
        now = replace(self.experience.read)  # a thread may go on reading
        read, self._read_before = now.since(self._read_before), now
        layers = {
            "read": (read.steps, read.read_seconds),
            "prelearner": (read.steps, read.prelearner_seconds),
            "learner": (steps, seconds.update + seconds.gather),
        }
        return {f"{name}_steps_per_second": steps / took for name, (steps, took) in layers.items() if steps and took}

    @property
    def _evaluates(self) -> bool:
        """Whether this iteration evaluates the policy: it is one of every so many, or the last one."""
        return self._iteration % self.goal.evaluation.interval_iterations == 0 or self.experience.is_over

    def _save(self) -> None:
        where, tensors = self.experience.save()
        tensors = tensors | self.learner.state()
        pending = [] if self.evaluations is None else self.evaluations.pending
        more = {f"{_EVALUATING}{progress_of(stamp)}.": weights for stamp, weights in pending} | {
            _BEST_WEIGHTS: {} if self.experience.repeats else self._best_weights
        }
        for prefix, weights in more.items():
            tensors |= {f"{prefix}{name}": torch.from_numpy(array) for name, array in weights.items()}
        tensors |= {f"{_BEST_NETWORKS}{name}": tensor for name, tensor in self._best_networks.items()}
        state = TrainingState(
            updates=self.learner.updates,
            steps=self.steps,
            progress=self.progress,
            iterations=self._iteration,
            seconds=self.elapsed_seconds,
            experience=where,
            best=self.best,
            best_updates=self._best_updates,
            evaluated=self.curve[-1][0] if self.curve else -1,
            held_out=self.held_out[-1][0] if self.held_out else -1,
            metrics=self.training_metrics,
            snapshots=self.snapshots,
            rollbacks=self.rollbacks,
            evaluating=[stamp for stamp, _ in pending],
            unwritten=self.metrics.unwritten,
        )
        self.states.save(state, tensors)

    def _collect(self, *, wait: bool) -> None:
        """Record finished evaluations, up to the one that ends the run."""
        for evaluation in self.evaluations.finished(wait=wait) if self.evaluations is not None and not self.ended else ():
            metrics, progress = evaluation.rollouts.metrics, progress_of(evaluation.stamp)
            mean, updates = metrics[RETURN], evaluation.stamp["updates"]
            self.curve.append((progress, mean))
            self.metrics.add({**evaluation.stamp, **{name: metrics[name] for name in FOLLOWED if name in metrics}})
            self.bar.note(mean_return=mean)
            if self._is_best(self.curve):
                self._save_best(evaluation.weights, metrics, evaluation.stamp)
            elif self._falls_for_long:
                self._roll_back(mean)
            self._save_snapshots(evaluation)
            self.last_weights, self.last_metrics = evaluation.weights, metrics
            self.reached_target = self.goal.target_return is not None and mean >= self.goal.target_return
            if self.reached_target or self._out_of_patience():
                self.ended = True
                self._end_at(progress)
            if updates in self._kept():
                self.checkpoints.save_in_series(evaluation.weights, metrics | self._held_out_at(updates), updates=updates)
            if self.ended:
                return

    def _end_at(self, progress: int) -> None:
        """Leave out of the result what was learned while the evaluation that ends the run played."""
        self.losses = [(at, loss) for at, loss in self.losses if at <= progress]
        self.held_out = [(at, loss) for at, loss in self.held_out if at <= progress]
        reported = [record for record in self.metrics.records if is_report(record) and progress_of(record) <= progress]
        if reported:
            self.progress, self.updates, self.steps = progress_of(reported[-1]), reported[-1]["updates"], reported[-1]["steps"]
            since = reported[-2]["updates"] if len(reported) > 1 else 0
            lines = sorted(self.metrics.records, key=lambda record: int(record["updates"]))
            shown = [(line["updates"], {name: line[name] for name in self.training_metrics if name in line}) for line in lines]
            records = [(at, metrics) for at, metrics in shown if since < at <= self.updates and metrics]
            self.training_metrics = self.training_metrics | mean_metrics(records, since=since)
            self._iteration_ends = [record["updates"] for record in reported]

    def _save_snapshots(self, evaluation: Evaluation) -> None:
        metrics = evaluation.rollouts.metrics
        for reached in sorted(set(self.goal.snapshots_at_returns) - set(self.snapshots)):
            if metrics[RETURN] >= reached:
                name = snapshot_name(reached)
                self.checkpoints.save(name, evaluation.weights, metrics, updates=evaluation.stamp["updates"])
                self.snapshots.append(reached)

    @property
    def _falls_for_long(self) -> bool:
        """Whether so many evaluations in a row, or as many again, were below that of the first policy."""
        returns = [value for _, value in self.curve]
        below = len([*itertools.takewhile(lambda value: value < returns[0], reversed(returns))])
        return self.goal.roll_back_after is not None and below > 0 and below % self.goal.roll_back_after == 0

    def _roll_back(self, mean: float) -> None:
        """Go on from the best networks so far."""
        learner = self.learner
        learner.restore(self._best_networks, updates=learner.updates, steps=learner.steps, within_window=False)
        self.rollbacks += 1
        at = f"{progress_of(self._stamp):,} {self.experience.unit}s"
        log.info("After %s the return is %.1f: back to the best networks", at, mean)

    def _recorded(self, name: str) -> list[tuple[int, float]]:
        return [(progress_of(record), record[name]) for record in self.metrics.records if name in record]

    def _out_of_patience(self) -> bool:
        curve = self.held_out if self.evaluations is None else self.curve
        patience, best = self.goal.evaluation.patience, self.best
        return patience is not None and best is not None and len([at for at, _ in curve if at > best[0]]) >= patience

    def _is_best(self, curve: list[tuple[int, float]], *, lowest: bool = False) -> bool:
        sign = -1 if lowest else 1
        return all(sign * curve[-1][1] > sign * value for _, value in curve[:-1])

    def _save_if_lowest(self) -> None:
        """Save the present policy as the best if its held-out loss is the lowest."""
        if self.held_out and self.learner.algorithm.loss_compares and self._is_best(self.held_out, lowest=True):
            self._save_best(snapshot(self.learner.networks.policy), {LOSS: self.held_out[-1][1]}, self._stamp)

    def _save_best(self, weights: Weights, metrics: Metrics, stamp: Stamp) -> None:
        self.best, self._best_weights = (progress_of(stamp), metrics), weights
        self._best_updates = stamp["updates"]
        self._best_networks = {} if self.goal.roll_back_after is None else self.learner.state()
        self.checkpoints.save(BEST, weights, metrics, updates=stamp["updates"])


def mean_metrics(records: Sequence[tuple[int, Metrics]], *, since: int) -> Metrics:
    """Return the metrics of several records as one: means by their updates, smallest of `_min`, largest of `_max`.

    Arguments:
        records: (updates, metrics), in order.
        since: updates before the first of them.
    """
    if len(records) == 1:
        return records[0][1]
    starts = [since, *(updates for updates, _ in records)]
    by_name: dict[str, tuple[list[float], list[int]]] = {}
    for (updates, metrics), start in zip(records, starts, strict=False):
        for name, value in metrics.items():
            values, weights = by_name.setdefault(name, ([], []))
            values.append(value)
            weights.append(updates - start)
    extreme = {"min": min, "max": max}
    return {
        name: extreme[end](values)
        if (end := name.rpartition("_")[2]) in extreme
        else sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)
        for name, (values, weights) in by_name.items()
    }


def wanted(keep: KeepConfig, iterations: Sequence[int], scores: Sequence[tuple[int, float]], ends: Sequence[int]) -> set[int]:
    """Return the updates of the policies that stay.

    Arguments:
        iterations: updates at the end of each iteration so far, in order.
        scores: (updates, score) of policies that were measured, in order; the higher the better, of equals the first.
        ends: updates after which the run may turn out to have ended; the latest policies of each are needed.
    """
    chosen: set[int] = set()
    if keep.interval is not None:
        regular = iterations[keep.interval - 1 :: keep.interval]
        for end in ends:
            until = [updates for updates in regular if updates <= end]
            chosen.update(until if keep.last is None else until[-keep.last :])
    if keep.best is not None:
        ended = set(iterations)
        measured = [(updates, score) for updates, score in scores if updates in ended and not math.isnan(score)]
        measured.sort(key=lambda pair: -pair[1])
        chosen.update(updates for updates, _ in measured[: keep.best])
    return chosen


def _weights(tensors: dict[str, torch.Tensor], prefix: str) -> Weights:
    return {name: tensor.numpy() for name, tensor in below(tensors, prefix).items()}
