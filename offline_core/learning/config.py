"""Parameters of training a policy from a dataset."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from offline_core.data.formats.sources.opening import SourceConfig
from offline_core.data.store.allowed_roots import IS_URI
from offline_core.learning.algorithms.registry import AlgorithmChoice
from offline_core.learning.prelearner.connectors import ConnectorConfig
from offline_core.learning.presets import TRAINING_PRESETS, listed, with_preset
from offline_core.learning.trainer_config import EvaluationsConfig, KeepConfig, OptimizerConfig, TorchConfig
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.config import Config, EnvironmentSpec, closed, without_defaults
from offline_core.runtime.units import ByteCount
from offline_core.runtime.user_code import UserCode

Actors: TypeAlias = Annotated[int, Field(ge=0, le=10_000)]


class SequencesConfig(Config):
    """How episodes are cut for recurrent networks."""

    steps: int = Field(32, ge=1, le=65_536, description="Steps of a sequence that are learned from.")
    burn_in_steps: int = Field(16, ge=0, le=65_536, description="Steps before them that only warm up the memory.")


class EvaluationDuringTraining(EvaluationsConfig):
    """Playing the policy while it trains, and its loss on data it does not learn from."""

    play: bool = Field(
        True,
        description="Play the policy while it trains. False: never, and no environment is made, whatever the dataset says.",
    )
    environment: EnvironmentSpec | None = Field(
        None, description="Where to play; None: where the dataset was recorded, if it says so."
    )
    actors: int = Field(
        1,
        ge=1,
        le=1024,
        description="Actors that share the episodes of each evaluation, from the start. Another number plays other episodes.",
    )
    location: Literal["auto", "process", "actor"] = Field(
        "auto",
        description="Where the policy is played. process: in the training's own process, which waits for it. actor: in an "
        "actor of Ray, beside the training. auto: in an actor once an evaluation took more than two seconds, and in the "
        "training's own process if Ray cannot start.",
    )
    held_out: Annotated[str | None, IS_URI] = Field(
        None,
        description="Folder of a dataset whose loss is measured and not learned from.",
    )
    held_out_bytes: ByteCount = Field(
        2**29,
        ge=1,
        description="Memory that held-out data may take, however much may stay there of what is learned from; of more, so much "
        "is held out, in row groups from all over it.",
    )

    @model_validator(mode="after")
    def _actors_are_actors(self) -> EvaluationDuringTraining:
        if self.actors > 1 and self.location == "process":
            raise ValueError("several actors play in actors of Ray: set location to auto or actor, or actors to 1")
        return self


class PrelearnerOptions(Config):
    """Options of Ray for each prelearner."""

    memory_bytes: ByteCount | None = Field(None, ge=1, description="Heap that Ray reserves, such as 2 GiB. None: it does not.")
    resources: dict[str, float] = Field(
        {}, description='Custom resources of nodes, as JSON: {"decoder": 1}; only such nodes run it.'
    )
    accelerator_type: str | None = Field(None, description="Kind of GPU, by Ray's name for it, such as A100. None: any.")

    @property
    def named(self) -> dict[str, Any]:
        """Those that are set, by the names that Ray gives them."""
        options = {"memory": self.memory_bytes, "resources": self.resources, "accelerator_type": self.accelerator_type}
        return {name: value for name, value in options.items() if value}

    @property
    def reserved(self) -> dict[str, float]:
        """What each prelearner takes, by the names of `ray.cluster_resources()`."""
        memory = {} if self.memory_bytes is None else {"memory": float(self.memory_bytes)}
        kind = {} if self.accelerator_type is None else {f"accelerator_type:{self.accelerator_type}": 0.001}  # as Ray takes
        return self.resources | memory | kind


class RewardsConfig(Config):
    """What rewards are learned as: scale · reward + shift."""

    scale: float | Literal["return_range"] = Field(
        1.0,
        description="Factor of each reward. return_range: 1000 over the difference of the best and the worst return of the "
        "dataset.",
    )
    shift: float = Field(0.0, description="Added to each reward, after the factor.")


class ReplayBufferConfig(Config):
    """Batches are drawn from the episodes that were read last, and not from each step once an epoch."""

    capacity_steps: int = Field(
        100_000,
        ge=1,
        le=10**9,
        description="Steps that the buffer holds, in whole episodes: the oldest leave first. At least one batch, or less "
        "with optimizer.replacement.",
    )
    read_episodes: int = Field(32, ge=1, le=10_000_000, description="Episodes that come into the buffer at once.")
    batches_per_read: int = Field(1, ge=1, le=1_000_000, description="Batches that are drawn before the next episodes come in.")
    sampling: Literal["uniform", "prioritized"] = Field(
        "uniform",
        description="uniform: every step is as likely as any other. prioritized: by the error that the algorithm had in it "
        "(Schaul et al. 2016); not for bc.",
    )
    priority_exponent: float = Field(
        0.6, ge=0, le=10, description="prioritized only: chances are errors to this power; 0 is uniform."
    )
    importance_exponent: float = Field(
        0.4,
        ge=0,
        le=1,
        description="prioritized only: how far the weights of losses undo unequal chances; 1: wholly.",
    )
    buffer_class: UserCode | None = Field(
        None,
        description="Your own subclass of offline_core.ReplayBuffer, which chooses what stays and what is drawn.",
    )

    @model_validator(mode="after")
    def _one_way_to_draw(self) -> ReplayBufferConfig:
        if self.buffer_class is not None and self.sampling != "uniform":
            raise ValueError("a buffer class of your own draws by itself: leave sampling at uniform")
        return self


class DataConfig(Config):
    """How the dataset is read, and where it waits."""

    prelearners: Literal["auto"] | Actors | tuple[Actors, Actors] = Field(
        "auto",
        description="Actors that turn stored rows into steps, at least one for each learner: so many, or [4, 8] for as many as "
        "are needed from 4 to 8. 0: each learner does it. auto: as many as are worth their start, by a short measurement.",
    )
    cpus_per_prelearner: float = Field(1.0, ge=0, le=128, description="That Ray reserves for each.")
    gpus_per_prelearner: float = Field(
        0.0,
        ge=0,
        le=8,
        description="That Ray reserves for each; for code of your own.",
    )
    prelearner_options: PrelearnerOptions | None = Field(
        None,
        description="What Ray reserves for each prelearner beside CPUs and GPUs. None: nothing.",
    )
    row_groups_per_read: int = Field(1, ge=1, le=10_000, description="Row groups (about 4 MiB each) that a prelearner takes.")
    prefetch: int = Field(2, ge=0, le=1_000, description="Blocks that are fetched while others are being learned from.")
    resident_bytes: Annotated[ByteCount, Field(ge=0)] | Literal["rows"] = Field(
        2 * 2**30,
        description="Keep the steps in memory if all of them take up to this size (2 GiB); otherwise stream them, in another "
        "order. rows: keep what is stored instead, in each learner, and map it anew each epoch.",
    )
    """A fixed size, so that the same training reads in the same order on every machine. 2 GiB leave room on a laptop of 8 GiB,
    and hold 8 million steps of 17 observed and 6 acted numbers, or 38,000 of four stacked frames.
    """
    window_steps: int = Field(
        262_144,
        ge=1,
        description="When streaming: about so many steps are in memory, and shuffled, together: whole "
        "row groups, of all learners.",
    )
    buffer: ReplayBufferConfig | None = Field(
        None,
        description="Draw batches from the episodes that were read last. None: learn from each step once an epoch.",
    )
    rewards: RewardsConfig = Field(
        RewardsConfig(),
        description="What rewards are learned as; the data stays as it is.",
    )
    allow_lost_terminations: bool = Field(
        False,
        description="Learn values even from an import that lost all terminations of its source.",
    )
    connectors: list[ConnectorConfig] = Field(
        [], description="Of your own: each changes columns of steps before they are learned from."
    )
    prelearner: UserCode | None = Field(
        None,
        description="Your own subclass of offline_core.PreLearner, which makes episodes of stored rows.",
    )
    source: SourceConfig | None = Field(
        None,
        description="What lies at the dataset's place is no dataset but rows for your prelearner, read like this: "
        '{"format": "read_text"}.',
    )
    data_class: UserCode | None = Field(
        None,
        description="Your own class that reads and maps by itself what lies at the dataset's place; see "
        "offline_core.learning.source.",
    )

    @property
    def reads_by_ray(self) -> bool:
        """Whether opening the data needs Ray."""
        return self.data_class is not None or (self.source is not None and self.source.is_rays)

    @model_validator(mode="after")
    def _a_pool_that_can_be(self) -> DataConfig:
        if isinstance(self.prelearners, tuple) and not 0 < self.prelearners[0] <= self.prelearners[1]:
            raise ValueError("of two numbers of prelearners the first is the smaller one, and not 0")
        if not self.cpus_per_prelearner and not self.gpus_per_prelearner:
            raise ValueError("a prelearner needs CPUs or GPUs: set cpus_per_prelearner or gpus_per_prelearner")
        if self.resident_bytes == "rows" and self.data_class is not None:
            raise ValueError("a data class of your own reads by itself, so its rows cannot be kept: set resident_bytes to 0")
        return self


class ComputeConfig(TorchConfig):
    """Who learns."""

    learners: Literal["auto"] | Annotated[int, Field(ge=0, le=1024)] = Field(
        0,
        description="Processes that share each batch (torch.distributed). 0: this process learns alone. auto: as many as are "
        "worth their start, by a short measurement; another number adds up in another order, so that the last bits differ.",
    )
    cpus_per_learner: float = Field(1.0, gt=0, le=128, description="That Ray reserves for each learner.")
    gpus_per_learner: float = Field(
        0.0,
        ge=0,
        le=8,
        description="That Ray reserves for each learner. With learners=0, any number but 0 says that this process learns on "
        "its GPU.",
    )
    placement: Literal["PACK", "SPREAD"] = Field("PACK", description="Learners on as few or on as many machines as can be.")
    max_failures: int = Field(3, ge=0, le=1_000, description="Lost learners after which the run stops instead of going on.")

    @property
    def processes(self) -> int:
        """Learners, once it is decided what `auto` means."""
        assert self.learners != "auto"
        return self.learners


_SPEED_ONLY: dict[str, Any] = {
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
    "optimizer": {"updates_per_record"},
    "compute": {"learners", "cpus_per_learner", "placement", "max_failures", "threads"},
    "initial_policy": True,
}
"""Parameters that do not change the policy, or are recorded otherwise: no part of its operation."""


class TrainingConfig(AlgorithmChoice):
    """How a policy is learned from a dataset."""

    preset: Annotated[str, Field(json_schema_extra=listed(TRAINING_PRESETS))] | None = Field(
        None,
        exclude=True,
        description="Settings of the algorithm's paper, below those that are given here: locomotion, … None: the defaults.",
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Same seed and dataset: same policy.")
    network: NetworkConfig = Field(
        NetworkConfig(),
        description="Layers of the policy; initial_policy brings its own.",
        json_schema_extra=closed,
    )
    initial_policy: Annotated[str | None, IS_URI] = Field(
        None,
        description="Checkpoint whose weights the policy begins with (runs/policy/best). None: random weights.",
    )
    sequences: SequencesConfig = Field(SequencesConfig(), description="For recurrent networks only.", json_schema_extra=closed)
    optimizer: OptimizerConfig = Field(OptimizerConfig(), description="Adam and its batches.")
    evaluation: EvaluationDuringTraining = Field(
        EvaluationDuringTraining(), description="How good the policy is while it trains.", json_schema_extra=closed
    )
    keep: KeepConfig | None = Field(
        None,
        description="A series of policies to choose from later, beside the best and the last. None: none.",
    )
    data: DataConfig = Field(DataConfig(), description="How the dataset is read, and where it waits.", json_schema_extra=closed)
    compute: ComputeConfig = Field(ComputeConfig(), description="Who learns.", json_schema_extra=closed)

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, values: Any) -> Any:
        return with_preset(values, cls, TRAINING_PRESETS) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _a_buffer_that_holds_a_batch(self) -> TrainingConfig:
        buffer, batch_size = self.data.buffer, self.optimizer.batch_size
        if buffer is not None and buffer.capacity_steps < batch_size and not self.optimizer.replacement:
            raise ValueError(
                f"data.buffer.capacity_steps is {buffer.capacity_steps:,}, and a batch has {batch_size:,} steps: raise it, "
                "lower optimizer.batch_size, or set optimizer.replacement, with which a batch holds steps twice"
            )
        if buffer is not None and buffer.sampling == "prioritized" and self.network.recurrent:
            raise ValueError("data.buffer.sampling=prioritized draws single steps; network.recurrent learns from sequences")
        return self

    @model_validator(mode="after")
    def _rewards_as_they_are_played_for(self) -> TrainingConfig:
        if self.algorithm == "dt" and self.data.rewards != RewardsConfig():
            raise ValueError(
                "dt plays for a return in the rewards of the environment: leave data.rewards out, set dt.return_scale"
            )
        return self

    def decisive(self, *, streamed: bool = True) -> dict[str, Any]:
        """Return what of it decides what is learned, without defaults: no other algorithm's, and nothing that only costs time.

        Arguments:
            streamed: the data does not stay in memory, so that its order depends on the window, unless it goes through a
                buffer.
        """
        has_windows = streamed and self.data.buffer is None
        excluded = _SPEED_ONLY if has_windows else _SPEED_ONLY | {"data": _SPEED_ONLY["data"] | {"window_steps"}}
        settings = without_defaults(self, exclude=excluded)
        return {name: value for name, value in settings.items() if name not in self.unused}
