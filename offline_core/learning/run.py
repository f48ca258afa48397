"""One training run, as each of its learners runs it."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from offline_core.config import Config, EnvironmentSpec
from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.algorithms.registry import ALGORITHMS, make_algorithm
from offline_core.learning.bottleneck import bottleneck
from offline_core.learning.checkpoints import Checkpoints
from offline_core.learning.config import TrainingConfig
from offline_core.learning.counting import Counts
from offline_core.learning.evaluations import Evaluations
from offline_core.learning.feed import Feed
from offline_core.learning.learner import Learner, torch_of_our_own
from offline_core.learning.loop import OtherLearnerError, Seconds, TrainingLoop
from offline_core.learning.metrics import MetricsLog
from offline_core.learning.observed import take_statistics
from offline_core.learning.planning import Costs, ray_resources
from offline_core.learning.result import TrainingResult
from offline_core.learning.source import Source, make_feed
from offline_core.learning.state import Position, States, TrainingState
from offline_core.learning.supervisor import RunSupervisor, resubmitted
from offline_core.seeding import derive_seed
from offline_core.storage.dataset import DatasetRef
from offline_core.storage.location import Location
from offline_core.storage.manifest import Operation, Parent, identity_of

log = logging.getLogger(__name__)

_HOW_FAST = {
    "data": {
        "prelearners",
        "cpus_per_prelearner",
        "gpus_per_prelearner",
        "prelearner_options",
        "row_groups_per_read",
        "prefetch",
        "resident_bytes",
    },
    "evaluation": {"held_out", "location"},
    "compute": {"learners", "cpus_per_learner", "placement", "max_failures", "threads"},
}
"""Parameters that do not change what is learned, or are told otherwise, and so are no part of where a policy comes from."""

_OF_STREAMS = {"window_steps"}


@dataclass(frozen=True, slots=True)
class Run:
    """What is to be learned, from what, and where to; small, and sent to every learner."""

    config: TrainingConfig
    source: Source
    held_out: Source | None
    environment: EnvironmentSpec | None
    """That the policy is for."""
    target_return: float | None
    output: str
    streamed: bool = False
    """Read anew each epoch, in another order than data that stays in memory."""
    counted: Counts | None = None
    """What comes out of code of the user's own; None: what the dataset says."""
    code: dict[str, str] = field(default_factory=dict)
    """See `code_digests`; as it was when the run began."""
    costs: Costs | None = None
    """As measured before it began; None: one process reads and learns, and shows them itself."""

    @property
    def played_in(self) -> EnvironmentSpec | None:
        """Where the policy is played while it trains; None: it is not."""
        return self.environment if self.config.evaluation.play else None

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return self.source.origin.ref.steps if self.counted is None else self.counted.steps

    @property
    def dataset(self) -> DatasetRef:
        """What is learned from; of what is no dataset of ours, with what was counted."""
        ref = self.source.origin.ref
        return ref if ref.version or self.counted is None else ref.model_copy(update=self.counted._asdict())

    @property
    def algorithm_config(self) -> Config | None:
        """Of the algorithm that was chosen; None for its defaults, and if it is the user's own."""
        algorithm = self.config.algorithm
        return getattr(self.config, algorithm, None) if isinstance(algorithm, str) else None

    @property
    def operation(self) -> Operation:
        """What made the policy: without parameters that had no say in it."""
        settings = self.config.model_dump(mode="json", exclude=_HOW_FAST)
        settings = {name: value for name, value in settings.items() if name == self.config.algorithm or name not in ALGORITHMS}
        settings["evaluation"]["environment"] = self.environment and self.environment.model_dump(mode="json")
        if not self.streamed or self.config.data.buffer is not None:
            settings["data"] = {name: value for name, value in settings["data"].items() if name not in _OF_STREAMS}
        settings["streamed"] = self.streamed
        if fingerprints := self.source.pipeline.fingerprints:
            settings["connectors"] = list(fingerprints)
        return Operation(name="train_policy", version=5, config=settings, code=self.code)

    @property
    def read(self) -> list[Source]:
        """All that it reads."""
        return [source for source in (self.source, self.held_out) if source is not None]

    @property
    def changes_show(self) -> bool:
        """The identity changes with the data."""
        return all(read.origin.changes_show for read in self.read)

    @property
    def parents(self) -> list[Parent]:
        """What is learned from, and what decides with it when it is enough."""
        return [source.origin.parent for source in self.read]

    @property
    def identity(self) -> str:
        """Stands for all that decides what is learned: see `identity_of`."""
        return identity_of(self.operation, self.parents)

    @property
    def total_updates(self) -> int:
        """About as many, if nothing ends it before the last epoch: for progress bars."""
        return self.config.optimizer.max_epochs * math.ceil(self.epoch_steps / self.config.optimizer.batch_size)

    @property
    def epoch_steps(self) -> int:
        """Learned from in a pass over the data: each once, or as many as are drawn from a replay buffer."""
        if (buffer := self.config.data.buffer) is None:
            return self.steps
        reads = math.ceil(self.dataset.episodes / buffer.read_episodes)
        return reads * buffer.batches_per_read * self.config.optimizer.batch_size

    def algorithm(self) -> Algorithm:
        """A new one.

        Raises:
            ConfigError: it cannot learn to act in these spaces.
        """
        return make_algorithm(
            self.config.algorithm,
            *self.source.pipeline.spaces,
            self.config.network,
            self.algorithm_config,
            seed=self.config.seed,
        )


def feed_of(run: Run) -> Feed:
    """What the run learns from."""
    return _feed(run, run.source, streamed=run.streamed)


def held_out_feed_of(run: Run) -> Feed | None:
    """What it only measures its loss on; all in memory."""
    return None if run.held_out is None else _feed(run, run.held_out, streamed=False)


def _feed(run: Run, source: Source, *, streamed: bool) -> Feed:
    return make_feed(
        source,
        run.config.data,
        run.algorithm(),
        expected_steps=run.steps if source is run.source else None,
        streamed=streamed,
        seed=run.config.seed,
        taken_cpus=run.config.compute.processes * run.config.compute.cpus_per_learner,
        optimizer=run.config.optimizer,
    )


def learn(run: Run, feed: Feed, held_out: Feed | None, *, start: float, rank: int = 0, world: int = 1) -> TrainingResult | None:
    """Trains as learner `rank` of `world`, from the last state of the run if there is one; the first learner has the result.

    Arguments:
        start: `time.time()` when the run began.
    """
    total_steps = run.config.optimizer.max_epochs * run.epoch_steps
    learner = Learner(run.algorithm(), run.config, total_steps=total_steps, rank=rank, world=world)
    folder = Location.of(run.output)
    states = States(folder, run=run.identity)
    found = first_state(states, learner)
    seconds = Seconds()
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch_of_our_own(run.config.compute.threads))
        supervisor = None
        if rank == 0:
            policy = learner.algorithm.policy
            checkpoints = Checkpoints(policy, folder, run.operation, run.environment, run.parents)
            if found is None:
                states.clear()
                checkpoints.clear_kept()
            metrics = stack.enter_context(MetricsLog(folder, after=None if found is None else found[0]))
            evaluations = None
            if run.played_in is not None:
                seed = derive_seed(run.config.seed, "evaluation")
                evaluations = Evaluations(policy, run.played_in, run.config.evaluation, seed=seed)
                stack.callback(evaluations.close)
            supervisor = RunSupervisor(
                run.config,
                learner,
                evaluations,
                None if held_out is None else lambda: learner.loss_on(next(held_out.chunks(0))),
                checkpoints,
                states,
                metrics,
                run.target_return,
                feed=feed,
                seconds=seconds,
                state=None if found is None else found[0],
                streamed=run.streamed,
                total_updates=run.total_updates,
            )
            stack.callback(supervisor.close)
        position = Position()
        if found is not None:
            state, tensors = found
            position = Position(*state.position)
            learner.restore(tensors, updates=state.updates, steps=state.steps, within_chunk=position.batch > 0)
            if supervisor is not None and supervisor.evaluations is not None:
                resubmitted(supervisor.evaluations, state, tensors)
            log.info("Going on with %s after update %s", run.output, f"{state.updates:,}")
        elif run.config.network.normalize_observations:
            take_statistics(learner, feed)
        loaded = time.time()
        begun = learner.steps
        TrainingLoop(run.config, learner, feed, supervisor, seconds=seconds, start=position).run()
        if supervisor is None:
            return None
        supervisor.finish()
        return _result(run, supervisor, seconds, feed, start=start, loaded=loaded, steps=learner.steps - begun)


def first_state(states: States, learner: Learner) -> tuple[TrainingState, dict[str, torch.Tensor]] | None:
    """What all learners go on from, which the first one reads: if each did, one of them might not find what another does.

    Raises:
        StorageError: what is there cannot be read; the others stop as well.
    """
    if learner.world == 1:
        return states.latest()
    told: list[Any] = [OtherLearnerError("The first learner stopped; its own error says why.")]
    try:
        if learner.rank == 0:
            told = [states.latest()]
    finally:
        torch.distributed.broadcast_object_list(told, src=0, device=learner.device)
    if isinstance(told[0], OtherLearnerError):
        raise told[0]
    return told[0]  # type: ignore[no-any-return]


def _result(
    run: Run, supervisor: RunSupervisor, seconds: Seconds, feed: Feed, *, start: float, loaded: float, steps: int
) -> TrainingResult:
    checkpoints = supervisor.checkpoints
    last = checkpoints.save("last", supervisor.last_weights, supervisor.last_metrics)
    best = supervisor.best
    best_uri = checkpoints.folder.child("best").uri if best else checkpoints.save("best", supervisor.last_weights, {})
    end = supervisor.reports[-1]
    took = seconds.wait + seconds.gather + seconds.update
    result: dict[str, Any] = {
        "checkpoint": best_uri,
        "last_checkpoint": last,
        "kept_checkpoints": supervisor.kept,
        "dataset": run.dataset,
        "updates": end.updates,
        "steps": end.steps,
        "epochs": end.steps / run.epoch_steps,
        "metrics": best[1] if best else {},
        "target_return": run.target_return,
        "reached_target": supervisor.reached_target,
        "curve": supervisor.curve,
        "losses": [(report.updates, report.loss) for report in supervisor.reports],
        "watched": supervisor.watched,
        "held_out_losses": supervisor.held_out,
        "seconds": time.time() - start,
        "load_seconds": loaded - start,
        "update_seconds": seconds.update,
        "gather_seconds": seconds.gather,
        "data_wait_seconds": seconds.wait,
        "steps_per_second": steps / took if took else 0.0,
        "bottleneck": bottleneck(
            run.config, seconds, feed, loading=loaded - start, steps=steps, costs=_costs(run, seconds, feed, steps)
        ),
    }
    return TrainingResult(**result)


def _costs(run: Run, seconds: Seconds, feed: Feed, steps: int) -> Costs | None:
    """For as many epochs as there were; None where too little was seen."""
    epochs = max(1, math.ceil(steps / run.epoch_steps))
    if run.costs is not None:
        return replace(run.costs, epochs=epochs)
    if not feed.read.steps or not steps:
        return None
    batch = run.config.optimizer.batch_size
    return Costs(
        steps=run.steps,
        epochs=epochs,
        epoch_steps=run.epoch_steps,
        batch_steps=batch,
        streamed=run.streamed,
        read_seconds_per_step=feed.read.seconds / feed.read.steps,
        update_seconds=seconds.update / max(1, steps / batch),
        parameter_bytes=0,
        cores=int(ray_resources()["CPU"]),
        ray_is_up=False,
    )
