"""What the first learner does at each pause: reports, has the policy played, writes states, says when it is enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import safetensors.torch
import torch

from offline_core.errors import LearningError
from offline_core.evaluation.result import FOLLOWED
from offline_core.learning.checkpoints import Checkpoints, kept_name
from offline_core.learning.config import TrainingConfig
from offline_core.learning.evaluations import Evaluations, Weights, snapshot
from offline_core.learning.feed import Feed, ReadSoFar
from offline_core.learning.learner import Learner
from offline_core.learning.loop import Seconds
from offline_core.learning.metrics import MetricsLog
from offline_core.learning.state import Metrics, Position, Report, States, TrainingState
from offline_core.policies.checkpoint import POLICY_FILE
from offline_core.progress import progress

RETURN = "episode_return_mean"
LOSS = "held_out_loss"
PLAYING = "evaluating"


class RunSupervisor:
    """Keeps the records of one run.

    Evaluations play beside the training, so the training is a little ahead of them. What comes of the run does not depend
    on by how much: the best policy is the first that reached the target (else the best of all), and the run counts as
    having ended there. Where nobody plays, the best policy is that with the lowest held-out loss, if the algorithm's
    can be compared over time, else the last one.

    Arguments:
        evaluations: None where nobody plays.
        held_out_loss: of the policy as it is; None if no data is held out.
        feed: tells how fast the data was read.
        state: where the run stands.
    """

    def __init__(
        self,
        config: TrainingConfig,
        learner: Learner,
        evaluations: Evaluations | None,
        held_out_loss: Callable[[], float] | None,
        checkpoints: Checkpoints,
        states: States,
        metrics: MetricsLog,
        target_return: float | None,
        *,
        feed: Feed,
        seconds: Seconds,
        state: TrainingState | None,
        streamed: bool,
        total_updates: int,
    ) -> None:
        self.config = config
        self.learner = learner
        self.evaluations = evaluations
        self.held_out_loss = held_out_loss
        self.checkpoints = checkpoints
        self.states = states
        self.metrics = metrics
        self.target_return = target_return
        self.streamed = streamed
        self.reached_target = False
        self.last_weights: Weights = {}
        self.last_metrics: Metrics = {}
        state = state or TrainingState(run=states.run)
        self.curve, self.held_out, self.reports = list(state.curve), list(state.held_out), list(state.reports)
        self.best, self.steps, self.watched = state.best, state.steps, state.watched
        self.ended = evaluations is None and self._out_of_patience()
        self.feed = feed
        self.seconds = seconds
        self._before = Seconds()
        self._read_before = ReadSoFar()
        self._iteration = 0
        self._bar = progress(total_updates, what="train", unit="update", began=state.updates)

    def pause(self, position: Position, watched: Metrics) -> bool:
        """See `Supervisor`."""
        self._bar.to(self.learner.updates)
        if any(not math.isfinite(value) for value in watched.values()):
            self.went_wrong(watched, self.learner.last_batch())
            return True
        self.watched = watched
        self._iteration = len(self.reports) + 1
        self._report(watched)
        if self.evaluations is not None:
            if self._evaluates:
                self.evaluations.submit(self.learner.updates)
        elif self._evaluates:
            self._keep_if_lowest()
        if (every := self.config.optimizer.keep_every_iterations) and self._iteration % every == 0:
            self.checkpoints.save(kept_name(self.learner.updates), snapshot(self.learner.algorithm.policy), {})
        self._save(position)
        self._collect(wait=False)
        self.ended = self.ended or (self.evaluations is None and self._out_of_patience())
        return self.ended

    def went_wrong(self, watched: Metrics, batch: dict[str, torch.Tensor]) -> None:
        """See `Supervisor`."""
        self._collect(wait=True)
        if self.ended:
            return  # it was good enough before it went wrong
        wrong = sorted(name for name, value in watched.items() if not math.isfinite(value))
        place = self.checkpoints.folder.child("bad-batch.safetensors")
        place.write(safetensors.torch.save({name: tensor.contiguous() for name, tensor in batch.items()}))
        raise LearningError(
            f"At update {self.learner.updates} {', '.join(wrong)} is no number any more. Its batch is at {place.uri}. Lower "
            "the learning rate, or set a gradient norm to clip to."
        )

    def finish(self) -> None:
        """After the last epoch: what the policy is now is the last one, and all evaluations are waited for."""
        if not self.ended or self.evaluations is None:
            self.last_weights, self.last_metrics = snapshot(self.learner.algorithm.policy), {}
            self._measure_last()
            self._submit_last()
            self._collect(wait=True)

    def _measure_last(self) -> None:
        """Measures the loss of the last policy on held-out data, too, where the interval left it out."""
        updates = self.learner.updates
        if self.held_out_loss is None or updates in {done for done, _ in self.held_out}:
            return
        self.held_out.append((updates, self.held_out_loss()))
        self.metrics.add(updates, {LOSS: self.held_out[-1][1]})
        if self.evaluations is None:
            self._keep_if_lowest()

    def _submit_last(self) -> None:
        """Evaluates the last policy, too, where the interval left it out."""
        updates = self.learner.updates
        if self.evaluations is not None and updates not in {
            *(done for done, _ in self.curve),
            *(pending for pending, _ in self.evaluations.pending),
        }:
            self.evaluations.submit(updates)

    @property
    def kept(self) -> list[str]:
        """URIs of the policies of every so many iterations that are still there."""
        every = self.config.optimizer.keep_every_iterations
        reports = self.reports[every - 1 :: every] if every else []
        places = [self.checkpoints.folder.child(kept_name(report.updates)) for report in reports]
        return [place.uri for place in places if place.child(POLICY_FILE).is_file()]

    def close(self) -> None:
        """The run is over, however it ended."""
        self._bar.close()

    def _report(self, watched: Metrics) -> None:
        seconds = self.seconds.since(self._before)
        self._before = Seconds(self.seconds.wait, self.seconds.gather, self.seconds.update, self.seconds.pause)
        steps, self.steps = self.steps, self.learner.steps
        record: dict[str, Any] = watched | {
            "steps": self.steps,
            "update_seconds": seconds.update,
            "gather_seconds": seconds.gather,
            "data_wait_seconds": seconds.wait,
            "steps_per_second": (self.steps - steps) / (seconds.update + seconds.gather + seconds.wait),
        }
        record |= self._rates(self.steps - steps, seconds)
        if self.held_out_loss is not None and self._evaluates:
            record[LOSS] = self.held_out_loss()
            self.held_out.append((self.learner.updates, record[LOSS]))
        self.reports.append(Report(self.learner.updates, self.steps, watched["loss"]))
        self.metrics.add(self.learner.updates, record)

    def _rates(self, steps: int, seconds: Seconds) -> dict[str, float]:
        """Steps a second of each layer, in the seconds that it worked in this iteration; those that did nothing have none."""
        now = replace(self.feed.read)  # a thread may be reading on
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
        playing = [] if self.evaluations is None else self.evaluations.pending
        for updates, weights in playing:
            tensors |= {f"{PLAYING}.{updates}.{name}": torch.from_numpy(array) for name, array in weights.items()}
        state = TrainingState(
            run=self.states.run,
            streamed=self.streamed,
            updates=self.learner.updates,
            steps=self.steps,
            position=position,
            reports=self.reports,
            curve=self.curve,
            held_out=self.held_out,
            best=self.best,
            watched=self.watched,
            evaluating=[updates for updates, _ in playing],
            unwritten=self.metrics.unwritten,
        )
        self.states.save(state, tensors)

    def _collect(self, *, wait: bool) -> None:
        """Takes in what has been evaluated, up to the evaluation that ends the run."""
        for evaluation in self.evaluations.finished(wait=wait) if self.evaluations is not None else ():
            metrics = evaluation.rollouts.metrics
            mean = metrics[RETURN]
            self.curve.append((evaluation.updates, mean))
            self.metrics.add(evaluation.updates, {name: metrics[name] for name in FOLLOWED if name in metrics})
            self._bar.note(mean_return=mean)
            if self._is_best(self.curve):
                self._keep_best(evaluation.weights, metrics, evaluation.updates)
            self.last_weights, self.last_metrics = evaluation.weights, metrics
            self.reached_target = self.target_return is not None and mean >= self.target_return
            if self.reached_target or self._out_of_patience():
                self.ended = True
                self.reports = [report for report in self.reports if report.updates <= evaluation.updates]
                self.held_out = [(updates, loss) for updates, loss in self.held_out if updates <= evaluation.updates]
                return

    def _out_of_patience(self) -> bool:
        curve = self.held_out if self.evaluations is None else self.curve
        patience = self.config.evaluation.patience
        return patience is not None and self.best is not None and len([u for u, _ in curve if u > self.best[0]]) >= patience

    def _is_best(self, curve: list[tuple[int, float]], *, lowest: bool = False) -> bool:
        sign = -1 if lowest else 1
        return all(sign * curve[-1][1] > sign * value for _, value in curve[:-1])

    def _keep_if_lowest(self) -> None:
        """Without an evaluation in the environment: the policy as it is, if its held-out loss is the lowest."""
        if self.held_out and self.learner.algorithm.loss_compares and self._is_best(self.held_out, lowest=True):
            self._keep_best(snapshot(self.learner.algorithm.policy), {LOSS: self.held_out[-1][1]}, self.learner.updates)

    def _keep_best(self, weights: Weights, metrics: Metrics, updates: int) -> None:
        self.best = (updates, metrics)
        self.checkpoints.save("best", weights, metrics)


def resubmitted(evaluations: Evaluations, state: TrainingState, tensors: dict[str, torch.Tensor]) -> None:
    """Has the weights played that were being played when `state` was written."""
    for updates in state.evaluating:
        prefix = f"{PLAYING}.{updates}."
        weights = {k.removeprefix(prefix): v.numpy() for k, v in tensors.items() if k.startswith(prefix)}
        evaluations.submit(updates, weights)
