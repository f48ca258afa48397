"""One training run: what is learned, from which data, and where it goes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.manifest import Operation, Parent, identity_of
from offline_core.data.episodes import EpisodeBatch
from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.algorithms.build import make_algorithm
from offline_core.learning.config import TrainingConfig
from offline_core.learning.costs import Costs
from offline_core.learning.data_loader import DataLoader, joined, resident, without_seconds
from offline_core.learning.decisive import decisive
from offline_core.learning.shards import ReadingOrder, Shards
from offline_core.learning.source import Counts, Source, make_data_loader, scaled, training_columns
from offline_core.learning.start import load_initial
from offline_core.policies.initial import initial_parents
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.policy import Policy
from offline_core.runtime.config import Config, EnvironmentSpec
from offline_core.runtime.stage import STAGES


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
        evaluation = self.config.evaluation.model_copy(update={"environment": self.environment})
        settings = decisive(self.config.model_copy(update={"evaluation": evaluation}), streamed=self.streamed)
        settings["streamed"] = self.streamed
        if fingerprints := self.source.pipeline.fingerprints:
            settings["connectors"] = list(fingerprints)
        return Operation(name="train", version=STAGES["train"].version, config=settings, code=self.code)

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
