"""Monitors a training run on the first learner: metrics, evaluations, states, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import safetensors.torch
import torch

from offline_core.data.store.location import Location
from offline_core.errors import LearningError
from offline_core.learning.checkpoints import Checkpoints
from offline_core.learning.costs import Seconds
from offline_core.learning.data_loader import DataLoader
from offline_core.learning.evaluations import Evaluations, Weights, snapshot
from offline_core.learning.keep_config import KeepConfig
from offline_core.learning.learner import Learner
from offline_core.learning.metrics import MetricsLog
from offline_core.learning.prelearner.mapper import ReadSoFar
from offline_core.learning.run import Run
from offline_core.learning.state import Metrics, Position, States, TrainingState
from offline_core.policies.evaluation.result import FOLLOWED
from offline_core.policies.series import saved_in, series_name
from offline_core.runtime.progress import progress

RETURN = "episode_return_mean"
LOSS = "held_out_loss"


class TrainingMonitor:
    """Reports on one run at each pause, evaluates the policy, saves states, and says when to stop.

    Evaluations play beside the training, which runs a little ahead of them. The result does not depend on how far: the best
    policy is the first that reached the target (else the best of all), and the run ends there. Where the policy is not played,
    the best one has the lowest held-out loss, if losses of different updates can be compared, else it is the last one.

    Arguments:
        evaluations: None where the policy is not played.
        held_out_loss: of the present policy; None if no data is held out.
        loader: its `read` has the speed of reading.
        state: the run resumes from it.
    """

    def __init__(
        self,
        run: Run,
        learner: Learner,
        evaluations: Evaluations | None,
        held_out_loss: Callable[[], float] | None,
        states: States[TrainingState],
        metrics: MetricsLog,
        loader: DataLoader,
        seconds: Seconds,
        state: TrainingState | None,
    ) -> None:
        self.run = run
        self.config = run.config
        self.learner = learner
        self.evaluations = evaluations
        self.held_out_loss = held_out_loss
        policy, folder = learner.algorithm.policy, Location.of(run.output)
        self.checkpoints = Checkpoints(policy, folder, run.operation, run.environment, run.parents, run.source.input_columns)
        if state is None:
            states.clear()
            self.checkpoints.clear_series()
        self.series = Series(self.checkpoints)
        self.states = states
        self.metrics = metrics
        self.reached_target = False
        self.last_weights: Weights = {}
        self.last_metrics: Metrics = {}
        state = state or TrainingState(run=states.run)
        self.losses = self._recorded("loss")
        self.curve, self.held_out = self._recorded(RETURN), self._recorded(LOSS)
        self.best, self.training_metrics = state.best, state.metrics
        self.updates, self.steps = state.updates, state.steps
        """Of the run's result: of the last report, or of the evaluation that ended the run."""
        self.ended = evaluations is None and self._out_of_patience()
        """The run is over: an evaluation reached the target, or patience ran out."""
        self.loader = loader
        self.seconds = seconds
        self._before = Seconds()
        self._read_before = ReadSoFar()
        self._iteration = state.iterations
        self._bar = progress(run.total_updates, what="train", unit="update", began=state.updates)

    def measure_first(self) -> None:
        """Measure an initial policy before the first update, as the result may be it and is never worse."""
        if self.evaluations is not None:
            self.evaluations.submit(0)
            self._collect(wait=True)
        elif self.held_out_loss is not None and self.learner.algorithm.loss_compares:
            self.held_out.append((0, self.held_out_loss()))
            self.metrics.add(0, {LOSS: self.held_out[-1][1]})
            self._save_if_lowest()

    def pause(self, position: Position, metrics: Metrics) -> bool:
        """Report, evaluate and save after each iteration; True ends the run."""
        self._bar.to(self.learner.updates)
        if any(not math.isfinite(value) for value in metrics.values()):
            self.on_non_finite_loss(metrics, self.learner.last_batch())
            return True
        self.training_metrics = metrics
        self._iteration += 1
        self._report(metrics)
        if self.evaluations is not None:
            if self._evaluates:
                self.evaluations.submit(self.learner.updates)
        elif self._evaluates:
            self._save_if_lowest()
        kept = self._keep_present()
        self._save(position)
        self.series.keep_only(kept)  # a run that is killed before goes on from a state that may need the others
        self._collect(wait=False)
        self.ended = self.ended or (self.evaluations is None and self._out_of_patience())
        return self.ended

    def on_non_finite_loss(self, metrics: Metrics, batch: dict[str, torch.Tensor]) -> None:
        """Raise an error for a NaN or infinite loss, unless the run reached its target before."""
        self._collect(wait=True)
        if self.ended:
            return  # the policy reached the target before
        names = sorted(name for name, value in metrics.items() if not math.isfinite(value))
        file = self.checkpoints.folder.child("bad-batch.safetensors")
        file.write(safetensors.torch.save({name: tensor.contiguous() for name, tensor in batch.items()}))
        raise LearningError(
            f"At update {self.learner.updates} {', '.join(names)} became NaN or infinite. The batch is at {file.uri}. Lower "
            "the learning rate, or set a gradient norm to clip to."
        )

    def finish(self) -> None:
        """Evaluate the last policy after the last epoch, and wait for all evaluations."""
        if not self.ended or self.evaluations is None:
            self._measure_last()
            updates = self.learner.updates
            if not self.last_weights or updates not in {done for done, _ in self.curve}:
                self.last_weights = snapshot(self.learner.algorithm.policy)
                self.last_metrics = self._held_out_at(updates)
            self._submit_last()
            self._collect(wait=True)
        self.series.keep_only(self._kept())

    def _measure_last(self) -> None:
        """Measure the held-out loss of the last policy where the interval left it out."""
        updates = self.learner.updates
        if self.held_out_loss is None or updates in {done for done, _ in self.held_out}:
            return
        self.held_out.append((updates, self.held_out_loss()))
        self.metrics.add(updates, {LOSS: self.held_out[-1][1]})
        if self.evaluations is None:
            self._save_if_lowest()
            self._keep_present()

    def _submit_last(self) -> None:
        """Evaluate the last policy where the interval left it out."""
        updates = self.learner.updates
        if self.evaluations is not None and updates not in {
            *(done for done, _ in self.curve),
            *(pending for pending, _ in self.evaluations.pending),
        }:
            self.evaluations.submit(updates)

    def _kept(self) -> set[int]:
        """Return the updates of the policies that stay, wherever the run turns out to end."""
        if self.config.keep is None:
            return set()
        pending = [] if self.evaluations is None or self.ended else [updates for updates, _ in self.evaluations.pending]
        scores = self.curve
        if self.evaluations is None:
            scores = [(updates, -loss) for updates, loss in self.held_out if self.learner.algorithm.loss_compares]
        return wanted(self.config.keep, [updates for updates, _ in self.losses], scores, [*pending, self.updates])

    def _keep_present(self) -> set[int]:
        """Save the present policy if it stays; return the updates of all that do."""
        kept = self._kept()
        if self.updates in kept:
            self.series.save(self.updates, snapshot(self.learner.algorithm.policy), self._held_out_at(self.updates))
        return kept

    def _held_out_at(self, updates: int) -> Metrics:
        losses = dict(self.held_out)
        return {LOSS: losses[updates]} if updates in losses else {}

    def close(self, *, failed: bool = False) -> None:
        """End the progress bar."""
        self._bar.close(failed=failed)

    def _report(self, metrics: Metrics) -> None:
        seconds = self.seconds.since(self._before)
        self._before = replace(self.seconds)
        steps = self.learner.steps - self.steps
        self.updates, self.steps = self.learner.updates, self.learner.steps
        record: dict[str, Any] = metrics | {
            "steps": self.steps,
            "update_seconds": seconds.update,
            "gather_seconds": seconds.gather,
            "data_wait_seconds": seconds.wait,
            "steps_per_second": steps / (seconds.update + seconds.gather + seconds.wait),
        }
        record |= self._rates(steps, seconds)
        if self.held_out_loss is not None and self._evaluates:
            record[LOSS] = self.held_out_loss()
            self.held_out.append((self.learner.updates, record[LOSS]))
        self.losses.append((self.updates, metrics["loss"]))
        self.metrics.add(self.learner.updates, record)

    def _rates(self, steps: int, seconds: Seconds) -> dict[str, float]:
        """Return the steps/s of each layer, over the seconds that it worked in this iteration; idle layers have none."""
        now = replace(self.loader.read)  # a thread may go on reading
        read, self._read_before = now.since(self._read_before), now
        layers = {
            "read": (read.steps, read.read_seconds),
            "prelearner": (read.steps, read.prelearner_seconds),
            "learner": (steps, seconds.update + seconds.gather),
        }
        return {f"{name}_steps_per_second": steps / took for name, (steps, took) in layers.items() if steps and took}

    @property
    def _evaluates(self) -> bool:
        """In this iteration."""
        return self._iteration % self.config.evaluation.interval_iterations == 0

    def _save(self, position: Position) -> None:
        tensors = self.learner.state()
        pending = [] if self.evaluations is None else self.evaluations.pending
        for updates, weights in pending:
            tensors |= {f"evaluating.{updates}.{name}": torch.from_numpy(array) for name, array in weights.items()}
        state = TrainingState(
            run=self.states.run,
            updates=self.learner.updates,
            steps=self.steps,
            position=position,
            iterations=self._iteration,
            best=self.best,
            metrics=self.training_metrics,
            evaluating=[updates for updates, _ in pending],
            unwritten=self.metrics.unwritten,
        )
        self.states.save(state, tensors)

    def _collect(self, *, wait: bool) -> None:
        """Record finished evaluations, up to the one that ends the run."""
        for evaluation in self.evaluations.finished(wait=wait) if self.evaluations is not None else ():
            metrics = evaluation.rollouts.metrics
            mean = metrics[RETURN]
            self.curve.append((evaluation.updates, mean))
            self.metrics.add(evaluation.updates, {name: metrics[name] for name in FOLLOWED if name in metrics})
            self._bar.note(mean_return=mean)
            if self._is_best(self.curve):
                self._save_best(evaluation.weights, metrics, evaluation.updates)
            self.last_weights, self.last_metrics = evaluation.weights, metrics
            self.reached_target = self.run.target_return is not None and mean >= self.run.target_return
            if self.reached_target or self._out_of_patience():
                self.ended = True
                self.losses = [(updates, loss) for updates, loss in self.losses if updates <= evaluation.updates]
                reported = [record for record in self.metrics.records if "loss" in record]
                end = next((each for each in reversed(reported) if each["updates"] <= evaluation.updates), {})
                self.updates, self.steps = end.get("updates", self.updates), end.get("steps", self.steps)
                self.training_metrics = {name: end.get(name, value) for name, value in self.training_metrics.items()}
                self.held_out = [(updates, loss) for updates, loss in self.held_out if updates <= evaluation.updates]
            if evaluation.updates in self._kept():
                more = self._held_out_at(evaluation.updates)
                self.series.save(evaluation.updates, evaluation.weights, metrics | more)
            if self.ended:
                return

    def _recorded(self, name: str) -> list[tuple[int, float]]:
        return [(record["updates"], record[name]) for record in self.metrics.records if name in record]

    def _out_of_patience(self) -> bool:
        curve = self.held_out if self.evaluations is None else self.curve
        patience = self.config.evaluation.patience
        return patience is not None and self.best is not None and len([u for u, _ in curve if u > self.best[0]]) >= patience

    def _is_best(self, curve: list[tuple[int, float]], *, lowest: bool = False) -> bool:
        sign = -1 if lowest else 1
        return all(sign * curve[-1][1] > sign * value for _, value in curve[:-1])

    def _save_if_lowest(self) -> None:
        """Save the present policy as the best if its held-out loss is the lowest."""
        if self.held_out and self.learner.algorithm.loss_compares and self._is_best(self.held_out, lowest=True):
            self._save_best(snapshot(self.learner.algorithm.policy), {LOSS: self.held_out[-1][1]}, self.learner.updates)

    def _save_best(self, weights: Weights, metrics: Metrics, updates: int) -> None:
        self.best = (updates, metrics)
        self.checkpoints.save("best", weights, metrics, updates=updates)


def resubmit(evaluations: Evaluations, state: TrainingState, tensors: dict[str, torch.Tensor]) -> None:
    """Submit the evaluations again that were unfinished when `state` was written."""
    for updates in state.evaluating:
        prefix = f"evaluating.{updates}."
        weights = {k.removeprefix(prefix): v.numpy() for k, v in tensors.items() if k.startswith(prefix)}
        evaluations.submit(updates, weights)


def wanted(keep: KeepConfig, iterations: Sequence[int], scores: Sequence[tuple[int, float]], ends: Sequence[int]) -> set[int]:
    """Return the updates of the policies that stay.

    Arguments:
        iterations: updates at the end of each iteration so far, in order.
        scores: (updates, score) of policies that were measured, in order; the higher the better, of equals the first.
        ends: updates after which the run may turn out to have ended; the latest policies of each are needed.
    """
    found: set[int] = set()
    if keep.interval is not None:
        regular = iterations[keep.interval - 1 :: keep.interval]
        for end in ends:
            until = [updates for updates in regular if updates <= end]
            found.update(until if keep.last is None else until[-keep.last :])
    if keep.best is not None:
        ended = set(iterations)
        measured = [(updates, score) for updates, score in scores if updates in ended and not math.isnan(score)]
        measured.sort(key=lambda each: -each[1])
        found.update(updates for updates, _ in measured[: keep.best])
    return found


class Series:
    """The policies of iterations in the folder of a run."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._saved = {int(name) for name in saved_in(checkpoints.folder)}

    def save(self, updates: int, weights: Weights, metrics: dict[str, float]) -> None:
        """Write or replace one."""
        self._checkpoints.save(series_name(updates), weights, metrics, updates=updates)
        self._saved.add(updates)

    def keep_only(self, updates: AbstractSet[int]) -> None:
        """Delete all others."""
        for each in sorted(self._saved - updates):
            self._checkpoints.delete(series_name(each))
        self._saved &= updates
