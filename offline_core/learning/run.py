"""One training run: what is learned, from which data, and where it goes."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from offline_core.data.datasets.dataset import DatasetRef, open_committed
from offline_core.data.datasets.manifest import Operation, Parent, identity_of
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.learning.config import DataConfig, TrainingConfig
from offline_core.learning.source import RawRows, Recorded, StepSource, UserData, count, is_streamed
from offline_core.policies.config import NetworkConfig
from offline_core.policies.manifest import PolicyManifest, find_policy
from offline_core.policies.series import SERIES
from offline_core.runtime.code_permission import recorded_environment
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.stage import STAGES
from offline_core.runtime.user_code import UserCode, code_digests, user_errors

if TYPE_CHECKING:  # what a run is, and so whether it was made before, is known without Torch
    from offline_core.learning.algorithms.algorithm import Algorithm
    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.shards import Shards
    from offline_core.policies.policy import Policy


_OF_ALGORITHMS = {"imitation_threshold": None, "transformer": None}
"""Parts of a network that only algorithms may set."""


@dataclass(frozen=True, slots=True)
class Run:
    """What is learned, from which data, and the output; small, and sent to every learner."""

    config: TrainingConfig
    source: StepSource
    held_out: StepSource | None
    environment: EnvironmentSpec | None
    """Environment of the policy."""
    target_return: float | None
    output: str
    streamed: bool = False
    """Read again each epoch, in another order than data that stays in memory."""
    counted: DatasetRef | None = None
    """The data as user code makes it, with the episodes and steps that come out; None: as the manifest says."""
    code: dict[str, str] = field(default_factory=dict)
    """`code_digests` when the run began."""
    initial: PolicyManifest | None = None
    """Of `initial_policy`, if there is one."""

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
        return ref if ref.version or self.counted is None else self.counted

    def with_counts(self) -> Run:
        """Read all of the data once, and return the run with what comes out of it.

        Raises:
            DataError: The data cannot be read, or holds no steps.
        """
        episodes, steps = count(self.source, self.algorithm)
        return replace(self, counted=self.source.origin.ref.model_copy(update={"episodes": episodes, "steps": steps}))

    @property
    def operation(self) -> Operation:
        """The operation that makes the policy, without parameters that have no effect on it."""
        evaluation = self.config.evaluation.model_copy(update={"environment": self.environment})
        settings = self.config.model_copy(update={"evaluation": evaluation}).decisive(streamed=self.streamed)
        settings["streamed"] = self.streamed
        if fingerprints := self.source.pipeline.fingerprints:
            settings["connectors"] = list(fingerprints)
        return Operation(name="train", version=STAGES["train"].version, config=settings, code=self.code)

    @property
    def read(self) -> list[StepSource]:
        """All data that the run reads."""
        return [source for source in (self.source, self.held_out) if source is not None]

    @property
    def changes_show(self) -> bool:
        """Whether the identity changes with the data."""
        return all(read.origin.changes_show for read in self.read)

    @property
    def parents(self) -> list[Parent]:
        """The training data, the held-out data, which chooses the best policy, and the initial policy."""
        read, uri = [source.origin.parent for source in self.read], self.config.initial_policy
        return read if uri is None or self.initial is None else [*read, self.initial.parent_entry(uri)]

    @property
    def identity(self) -> str:
        """Hash of all that decides what is learned, see `identity_of`."""
        return identity_of(self.operation, self.parents)

    @property
    def total_updates(self) -> int:
        """Approximate updates to the last epoch, for progress bars."""
        optimizer = self.config.optimizer
        return optimizer.max_updates or self.max_epochs * math.ceil(self.epoch_steps / optimizer.batch_size)

    @property
    def total_steps(self) -> int:
        """Steps learned from, at most."""
        optimizer = self.config.optimizer
        if optimizer.max_updates is not None:
            return optimizer.max_updates * optimizer.batch_size
        return self.max_epochs * self.epoch_steps

    @property
    def max_epochs(self) -> int:
        """Passes over the data, at most, where optimizer.max_updates does not count."""
        return self.config.optimizer.epochs(self.epoch_steps)

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
        from offline_core.learning.shards import Shards

        return Shards() if self.config.data.buffer else Shards.of(self.steps, rank=rank, world=world)

    def initial_policy(self, policy: Policy) -> Policy | None:
        """Return the policy whose weights `policy` begins with; None: its own.

        Raises:
            CheckpointError: It is not a checkpoint, or was replaced meanwhile.
            ConfigError: It has other spaces or another network.
        """
        if self.config.initial_policy is None or self.initial is None:
            return None
        from offline_core.policies.initial import load_initial

        return load_initial(self.config.initial_policy, self.initial, policy, self.dataset.uri, self.source.input_columns)

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm, with its parameters.

        Raises:
            ConfigError: It is none, or cannot act in this action space.
        """
        return self.config.chosen.for_actions(self.source.pipeline.spaces[1])

    def networks(self) -> Networks:
        """Return new networks, with weights of their own.

        Raises:
            ConfigError: The algorithm cannot act in these spaces.
        """
        from offline_core.learning.algorithms.networks import Networks

        algorithm, spaces = self.config.algorithm, self.source.pipeline.spaces
        own = user_errors(f"algorithm {algorithm}", f"with {spaces[0]} and {spaces[1]}", ConfigError)
        with own if isinstance(algorithm, UserCode) else contextlib.nullcontext():
            return Networks(self.config.chosen, *spaces, self.config.network, seed=self.config.seed)


def asked_run(config: TrainingConfig, dataset: str, output: str, version: int | None) -> Run:
    """Return the run: all that decides what is learned."""
    initial = None
    if config.initial_policy is not None:
        config, initial = _beginning_at(config.initial_policy, config, output)
    source, held_out = _opened(config.data, dataset, version), config.evaluation.held_out
    config = _with_target_return(_with_reward_scale(config, source), source)
    environment = config.evaluation.environment
    if environment is None:
        environment = source.environment
        if config.evaluation.play:
            recorded_environment(environment, file=source.origin.ref.uri)
    run = Run(
        config=config,
        source=source,
        held_out=None if held_out is None else _opened(config.data, held_out, None),
        environment=environment,
        target_return=config.evaluation.target_in(environment if config.evaluation.play else None),
        output=output,
        code=code_digests(config) | ({} if environment is None else code_digests(environment)),
        initial=initial,
    )
    if not source.origin.ref.steps:
        run = run.with_counts()
    return replace(run, streamed=is_streamed(source, run.steps, config.data))


def _beginning_at(policy: str, config: TrainingConfig, output: str) -> tuple[TrainingConfig, PolicyManifest]:
    """Return the parameters with the initial policy, and the manifest of that policy.

    The policy gives its network and the returns of dt too, unless the parameters name others.

    Raises:
        CheckpointError: It is not a checkpoint.
        ConfigError: The training would replace it.
    """
    uri, manifest = find_policy(policy)
    folder, initial_uri = Location.of(output).uri, Location.of(uri).uri
    if initial_uri.removeprefix(f"{folder}/").partition("/")[0] in ("best", "last", SERIES):
        raise ConfigError(
            f"The training would replace initial_policy {uri}, as its output is {output}: give it another output."
        )
    changes: dict[str, Any] = {"initial_policy": uri}
    if config.network == NetworkConfig():
        changes["network"] = manifest.network.model_copy(update=_OF_ALGORITHMS)
    if config.algorithm == "dt" and (layers := manifest.network.transformer) is not None:
        returns = {
            name: getattr(layers, name) for name in ("target_return", "return_scale") if getattr(config.dt, name) is None
        }
        changes["dt"] = config.dt.model_copy(update=returns)
    return config.model_copy(update=changes), manifest


def _with_reward_scale(config: TrainingConfig, source: StepSource) -> TrainingConfig:
    """Return the parameters with the factor of rewards as a number.

    Raises:
        ConfigError: It is that of the returns' range, and there is none.
    """
    rewards = config.data.rewards
    if rewards.scale != "return_range":
        return config
    lowest, highest = _returns(source, "data.rewards.scale")
    if not lowest < highest:
        raise ConfigError(
            f"The returns of {source.origin.ref.uri} differ by 0, so data.rewards.scale cannot be return_range: set it to a "
            "number."
        )
    number = rewards.model_copy(update={"scale": 1000 / (highest - lowest)})
    return config.model_copy(update={"data": config.data.model_copy(update={"rewards": number})})


def _with_target_return(config: TrainingConfig, source: StepSource) -> TrainingConfig:
    """Return the parameters with the returns of dt as numbers.

    Raises:
        ConfigError: They are to be the dataset's, and those are not known.
    """
    if config.algorithm != "dt" or None not in (config.dt.target_return, config.dt.return_scale):
        return config
    parameters = "dt.target_return and dt.return_scale"
    if source.is_own:
        raise ConfigError(f"Your code makes the steps of {source.origin.ref.uri}, and so their returns: set {parameters}.")
    return config.model_copy(update={"dt": config.dt.of_dataset(*_returns(source, parameters))})


def _returns(source: StepSource, parameter: str) -> tuple[float, float]:
    """Return the lowest and the highest return of a dataset, for what `parameter` says.

    Raises:
        ConfigError: They are not known before it is read, or not finite.
    """
    uri = source.origin.ref.uri
    if not isinstance(source, Recorded):
        raise ConfigError(f"The returns of {uri} are not known before it is read: set {parameter} to a number.")
    returns = source.dataset.manifest.statistics.returns
    if returns.min is None or returns.max is None or not math.isfinite(returns.max - returns.min):
        raise ConfigError(f"The returns of {uri} are not finite numbers: set {parameter} to a number.")
    return returns.min, returns.max


def _opened(config: DataConfig, uri: str, version: int | None) -> StepSource:
    """Open the data as `config` says."""
    if config.data_class is None and config.source is None:
        return Recorded.of(open_committed(uri, version), config)
    if version is not None:
        raise ConfigError(f"{uri} is read by your code and has no version {version}; leave the version out.")
    return RawRows.of(uri, config) if config.data_class is None else UserData.of(uri, config)
