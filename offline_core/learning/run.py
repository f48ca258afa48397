"""One training run, as each of its learners runs it."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.manifest import Operation, Parent, identity_of
from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.data.store.location import Location
from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.algorithms.build import make_algorithm
from offline_core.learning.bottleneck import bottleneck
from offline_core.learning.config import TrainingConfig
from offline_core.learning.data_loader import DataLoader, joined, resident, without_seconds
from offline_core.learning.decisive import OF_STREAMS, decisive
from offline_core.learning.evaluations import Evaluations
from offline_core.learning.learner import Learner
from offline_core.learning.loop import OtherLearnerError, Seconds, TrainingLoop
from offline_core.learning.metrics import MetricsLog
from offline_core.learning.monitor import TrainingMonitor, resubmit
from offline_core.learning.networks import save_networks
from offline_core.learning.observed import take_statistics
from offline_core.learning.planning import Costs
from offline_core.learning.q_values import q_warnings, recorded_returns
from offline_core.learning.result import TrainingResult
from offline_core.learning.shards import ReadingOrder, Shards
from offline_core.learning.source import Counts, Source, make_data_loader, scaled, training_columns
from offline_core.learning.start import load_initial
from offline_core.learning.state import Position, States, TrainingState
from offline_core.policies.initial import begin_as, initial_parents
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.policy import Policy
from offline_core.policies.series import series_of
from offline_core.runtime.config import Config, EnvironmentSpec
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.torch_settings import isolated_torch

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Run:
    """What is learned, from which data, and the output; small, and sent to every learner."""

    config: TrainingConfig
    source: Source
    held_out: Source | None
    environment: EnvironmentSpec | None
    """Environment of the policy."""
    target_return: float | None
    output: str
    streamed: bool = False
    """Read again each epoch, in another order than data that stays in memory."""
    counted: Counts | None = None
    """Result of user code on the data; None: that of the manifest."""
    code: dict[str, str] = field(default_factory=dict)
    """`code_digests` when the run began."""
    initial: PolicyManifest | None = None
    """Of `initial_policy`, if there is one."""
    costs: Costs | None = None
    """As measured before the start; None: one process reads and learns, and measures them itself."""

    @property
    def played_in(self) -> EnvironmentSpec | None:
        """Environment in which the policy is played during training; None: it is not played."""
        return self.environment if self.config.evaluation.play else None

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return (self.counted or self.source.origin.ref).steps

    @property
    def dataset(self) -> DatasetRef:
        """The dataset that is learned from; for other data, with what was counted."""
        ref = self.source.origin.ref
        return ref if ref.version or self.counted is None else ref.model_copy(update=self.counted._asdict())

    @property
    def algorithm_config(self) -> Config | None:
        """Parameters of the chosen algorithm; None for a user's."""
        algorithm = self.config.algorithm
        return getattr(self.config, algorithm, None) if isinstance(algorithm, str) else None

    @property
    def operation(self) -> Operation:
        """The operation that makes the policy, without parameters that have no effect on it."""
        settings = decisive(self.config)
        settings["evaluation"]["environment"] = self.environment and self.environment.model_dump(mode="json")
        if not self.streamed or self.config.data.buffer is not None:
            settings["data"] = {name: value for name, value in settings["data"].items() if name not in OF_STREAMS}
        settings["streamed"] = self.streamed
        if fingerprints := self.source.pipeline.fingerprints:
            settings["connectors"] = list(fingerprints)
        return Operation(name="train_policy", version=6, config=settings, code=self.code)

    @property
    def read(self) -> list[Source]:
        """All data that the run reads."""
        return [source for source in (self.source, self.held_out) if source is not None]

    @property
    def changes_show(self) -> bool:
        """Whether the identity changes with the data."""
        return all(read.origin.changes_show for read in self.read)

    @property
    def parents(self) -> list[Parent]:
        """The training data, the held-out data, which chooses the best policy, and the initial policy."""
        return [*(source.origin.parent for source in self.read), *initial_parents(self.config.initial_policy, self.initial)]

    @property
    def identity(self) -> str:
        """Hash of all that decides what is learned, see `identity_of`."""
        return identity_of(self.operation, self.parents)

    @property
    def total_updates(self) -> int:
        """Approximate updates to the last epoch, for progress bars."""
        optimizer = self.config.optimizer
        return optimizer.max_updates or optimizer.max_epochs * math.ceil(self.epoch_steps / optimizer.batch_size)

    @property
    def total_steps(self) -> int:
        """Steps learned from, at most."""
        optimizer = self.config.optimizer
        if optimizer.max_updates is not None:
            return optimizer.max_updates * optimizer.batch_size
        return optimizer.max_epochs * self.epoch_steps

    @property
    def epoch_steps(self) -> int:
        """Steps learned from in a pass over the data: each once, or those drawn from a replay buffer."""
        if (buffer := self.config.data.buffer) is None:
            return self.steps
        reads = math.ceil((self.counted or self.dataset).episodes / buffer.read_episodes)
        return reads * buffer.batches_per_read * self.config.optimizer.batch_size

    def shards(self, rank: int, world: int) -> Shards:
        """Return the shards that learner `rank` of `world` reads; all learners hold the whole replay buffer.

        Raises:
            ConfigError: There are more learners than shards.
        """
        return Shards() if self.config.data.buffer else Shards.of(self.steps, rank=rank, world=world)

    def initial_policy(self, policy: Policy) -> Policy | None:
        """Return the policy whose weights `policy` begins with; None: its own.

        Raises:
            CheckpointError: It is not a checkpoint, or was replaced meanwhile.
            ConfigError: It has other spaces or another network.
        """
        if self.config.initial_policy is None or self.initial is None:
            return None
        return load_initial(self.config.initial_policy, self.initial, policy, self.dataset.uri, self.source.input_columns)

    def algorithm(self) -> Algorithm:
        """Return a new algorithm, with weights of its own.

        Raises:
            ConfigError: It cannot act in these spaces.
        """
        return make_algorithm(
            self.config.algorithm,
            *self.source.pipeline.spaces,
            self.config.network,
            self.algorithm_config,
            seed=self.config.seed,
        )


def loader_of(run: Run, *, rank: int = 0, world: int = 1, loaded: EpisodeBatch | None = None) -> DataLoader:
    """Open the data that learner `rank` of `world` learns from.

    Arguments:
        loaded: what `loaded_columns` returned for it.

    Raises:
        ConfigError: There are more learners than shards.
    """
    shards = run.shards(rank, world)
    if loaded is None:
        return _loader(run, run.source, streamed=run.streamed, shards=shards)
    order = ReadingOrder.stored(run.source.row_groups) if run.source.row_groups else None
    return resident(next(scaled(iter([loaded]), run.config.data.rewards)), order, shards)


def loaded_columns(run: Run) -> EpisodeBatch:
    """Read all columns that the run learns from into memory, for all runs that need the same ones of the same data."""
    with run.source.reading():
        found = [without_seconds(batch)[0] for batch in training_columns(run.source, run.algorithm())]
    return joined(found, run.dataset.uri)


def held_out_loader_of(run: Run) -> DataLoader | None:
    """Open the held-out data, all in memory."""
    return None if run.held_out is None else _loader(run, run.held_out, streamed=False)


def _loader(run: Run, source: Source, *, streamed: bool, shards: Shards = Shards()) -> DataLoader:
    return make_data_loader(
        source,
        run.config.data,
        run.algorithm(),
        expected_steps=run.steps if source is run.source else None,
        streamed=streamed,
        seed=run.config.seed,
        shards=shards,
        learners=max(1, run.config.compute.processes),
        taken_cpus=run.config.compute.processes * run.config.compute.cpus_per_learner,
        optimizer=run.config.optimizer,
    )


def learn(
    run: Run, loader: DataLoader, held_out: DataLoader | None, *, start: float, rank: int = 0, world: int = 1
) -> TrainingResult | None:
    """Train as learner `rank` of `world`, from the last state of the run if it has one; the first learner returns the result.

    Arguments:
        start: `time.time()` when the run began.
    """
    learner = Learner(run.algorithm(), run.config, total_steps=run.total_steps, rank=rank, world=world)
    folder = Location.of(run.output)
    states = States(folder, TrainingState, run=run.identity)
    found = first_state(states, learner)
    seconds = Seconds()
    with contextlib.ExitStack() as stack:
        stack.enter_context(isolated_torch(run.config.compute.threads))
        monitor = None
        if rank == 0:
            policy = learner.algorithm.policy
            metrics = stack.enter_context(MetricsLog(folder, after=None if found is None else found[0]))
            evaluations = None
            if run.played_in is not None:
                seed = derive_seed(run.config.seed, "evaluation")
                evaluations = Evaluations(policy, run.played_in, run.config.evaluation, seed=seed)
                stack.callback(evaluations.close)
            held_out_loss = None if held_out is None else lambda: learner.loss_on(next(held_out.windows(0)))
            state = None if found is None else found[0]
            monitor = TrainingMonitor(run, learner, evaluations, held_out_loss, states, metrics, loader, seconds, state)
            stack.callback(monitor.close)
        position = Position()
        if found is not None:
            state, tensors = found
            position = Position(*state.position)
            learner.restore(tensors, updates=state.updates, steps=state.steps, within_window=position.batch > 0)
            if monitor is not None and monitor.evaluations is not None:
                resubmit(monitor.evaluations, state, tensors)
            log.info("Resuming %s after update %s", run.output, f"{state.updates:,}")
        elif (initial := run.initial_policy(learner.algorithm.policy)) is not None:
            begin_as(learner.algorithm.policy, initial)  # with its observation filter
            if monitor is not None:
                monitor.measure_first()
        elif run.config.network.normalize_observations:
            take_statistics(learner, loader)
        loaded = time.time()
        begun = learner.steps
        TrainingLoop(run.config, learner, loader, monitor, seconds=seconds, start=position).run()
        if monitor is None:
            return None
        monitor.finish()
        return _result(run, monitor, seconds, loader, start=start, loaded=loaded, steps=learner.steps - begun)


def first_state(states: States[TrainingState], learner: Learner) -> tuple[TrainingState, dict[str, torch.Tensor]] | None:
    """Return the state to resume from. The first learner reads it for all: others might find another one.

    Raises:
        StorageError: It cannot be read; the other learners stop as well.
    """
    if learner.world == 1:
        return states.latest()
    shared: list[Any] = [OtherLearnerError("The first learner stopped; its own error says why.")]
    try:
        if learner.rank == 0:
            shared = [states.latest()]
    finally:
        torch.distributed.broadcast_object_list(shared, src=0, device=learner.device)
    if isinstance(shared[0], OtherLearnerError):
        raise shared[0]
    return shared[0]  # type: ignore[no-any-return]


def _result(
    run: Run, monitor: TrainingMonitor, seconds: Seconds, loader: DataLoader, *, start: float, loaded: float, steps: int
) -> TrainingResult:
    checkpoints = monitor.checkpoints
    weights, metrics, updates = monitor.last_weights, monitor.last_metrics, monitor.updates
    last = checkpoints.save("last", weights, metrics, updates=updates)
    best = monitor.best
    best_uri = checkpoints.folder.child("best").uri if best else checkpoints.save("best", weights, {}, updates=updates)
    took = seconds.wait + seconds.gather + seconds.update
    result: dict[str, Any] = {
        "checkpoint": best_uri,
        "last_checkpoint": last,
        "kept": series_of(checkpoints.folder),
        "networks_sha256": save_networks(monitor.learner.algorithm, checkpoints.folder),
        "dataset": run.dataset,
        "updates": monitor.updates,
        "steps": monitor.steps,
        "epochs": monitor.steps / run.epoch_steps,
        "metrics": best[1] if best else {},
        "target_return": run.target_return,
        "reached_target": monitor.reached_target,
        "curve": monitor.curve,
        "losses": monitor.losses,
        "training_metrics": monitor.training_metrics,
        **_beside_returns(monitor),
        "held_out_losses": monitor.held_out,
        "seconds": time.time() - start,
        "load_seconds": loaded - start,
        "update_seconds": seconds.update,
        "gather_seconds": seconds.gather,
        "data_wait_seconds": seconds.wait,
        "steps_per_second": steps / took if took else 0.0,
        "bottleneck": bottleneck(
            run.config, seconds, loader, loading=loaded - start, steps=steps, costs=_costs(run, seconds, loader, steps)
        ),
    }
    return TrainingResult(**result)


def _beside_returns(monitor: TrainingMonitor) -> dict[str, Any]:
    """Return how Q compares with the returns of the steps that were loaded last; nothing if no Q is learned."""
    q, steps = monitor.training_metrics.get("q"), monitor.learner.loaded_steps
    gamma = getattr(monitor.learner.algorithm.config, "gamma", None)
    if q is None or gamma is None or steps is None or not {columns.REWARDS, columns.TERMINATEDS} <= steps.columns.keys():
        return {}
    recorded = recorded_returns(steps, gamma)
    return {} if recorded is None else {"recorded_return": recorded.mean, "warnings": q_warnings(q, recorded)}


def _costs(run: Run, seconds: Seconds, loader: DataLoader, steps: int) -> Costs | None:
    """Return costs for the epochs that were run; None if too little was measured."""
    epochs = max(1, math.ceil(steps / run.epoch_steps))
    if run.costs is not None:
        return replace(run.costs, epochs=epochs)
    if not loader.read.steps or not steps:
        return None
    costs = Costs.of(
        run,
        read_seconds_per_step=loader.read.seconds / loader.read.steps,
        update_seconds=seconds.update / max(1, steps / run.config.optimizer.batch_size),
        parameter_bytes=0,
        ray_is_up=False,
    )
    return replace(costs, epochs=epochs)
