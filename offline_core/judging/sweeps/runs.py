"""The runs of a sweep: checked against the data before any of them starts, and trained one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from offline_core.data.episodes import EpisodeBatch
from offline_core.data.store.location import Location
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.result import RUNS
from offline_core.judging.sweeps.settings import Setting, each
from offline_core.learning.config import TrainingConfig
from offline_core.learning.result import TrainingResult
from offline_core.learning.run import Run, asked_run
from offline_core.learning.train import found_result, train


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A setting, and one training of it; small, and sent to the process that trains."""

    setting: Setting
    run: Run

    @property
    def seed(self) -> int:
        return self.run.config.seed

    @property
    def name(self) -> str:
        return f"{self.setting.name}, seed {self.seed}"

    def with_seed(self, seed: int) -> PlannedRun:
        """The run of this seed, in a folder of its own."""
        config, output = self.run.config.model_copy(update={"seed": seed}), Location.of(self.run.output).child(str(seed)).uri
        return replace(self, run=replace(self.run, config=config, output=output))

    def done(self) -> TrainingResult | None:
        """The result of the training, if it exists."""
        return found_result(self.run)

    def train(self, loaded: EpisodeBatch | None = None) -> TrainingResult:
        """Train, or resume an unfinished training; from columns in memory if they are given."""
        run, version = self.run, self.run.dataset.version or None
        return train(run.config, dataset=run.dataset.uri, version=version, output=run.output, loaded=loaded)


def asked_runs(settings: Sequence[Setting], *, dataset: str, output: str, version: int | None) -> list[PlannedRun]:
    """Return a run of each setting, of no seed yet; all learn from the same version of the dataset.

    Raises:
        ConfigError: Some settings cannot be trained; the message lists all that is wrong.
        StorageError, DataError: The dataset cannot be opened.
    """

    def run_of(setting: Setting) -> PlannedRun:
        nonlocal dataset, version
        folder = Location.of(output).child(f"{RUNS}/{setting.digest}").uri
        run = asked_run(_alone(setting.config), dataset, folder, version)
        dataset, version = run.dataset.uri, version or run.dataset.version or None  # of data@tag, what the tag names
        return PlannedRun(setting, run)

    return each(settings, run_of, lambda setting: setting.name, "cannot be trained")


def check_runs(asked: Sequence[PlannedRun]) -> None:
    """Check by the networks of these settings that each can be trained.

    Raises:
        ConfigError: Some cannot; the message lists all that is wrong.
    """
    from offline_core.learning.work import check_environment, check_run  # here, for what is reused needs no Torch

    def check(planned: PlannedRun) -> None:
        algorithm = planned.run.networks()
        check_run(planned.run, algorithm)
        check_environment(planned.run, algorithm)

    each(asked, check, lambda planned: planned.setting.name, "cannot be trained")


def planned_runs(config: SweepConfig, asked: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Return all runs, setting by setting."""
    return [planned.with_seed(seed) for planned in asked for seed in config.all_seeds]


def _alone(config: TrainingConfig) -> TrainingConfig:
    """The training without a measurement of how many prelearners are worth their start, as runs share the machine."""
    if config.data.prelearners != "auto":
        return config
    return config.model_copy(update={"data": config.data.model_copy(update={"prelearners": 0})})
