"""The stages as users call them: data first, parameters as keywords, and results that the next stage takes.

    expert = offline.train_expert("CartPole-v1", output="runs/expert")
    data = offline.record(expert, episodes=500, output="runs/recording")
    run = offline.train(data, algorithm="marwil", output="runs/policy")

Data is a URI, a `DatasetRef`, an opened `Dataset`, or the result of a stage that read or wrote a dataset. A policy is the URI
of a checkpoint, the address of a registered one (`runs/registry/hvac@champion`), or the result of a stage that trained one.
Each keyword is a field of the stage's config (`offline VERB --show-config` lists them); `config` takes a whole one, or a
mapping of the same fields, and keywords win over it.

All stages raise `ConfigError` for a parameter that is unknown or out of bounds, before anything starts, and reuse the result
of the same parameters on the same data.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from offline_core.arguments import Data, Given, Path, Trained, checkpoint_of, config_of, latest_of, place_of
from offline_core.data.datasets import dataset as datasets
from offline_core.data.datasets import reader
from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.episodes import Episode, columns
from offline_core.errors import ConfigError
from offline_core.runtime.config import EnvironmentSpec

if TYPE_CHECKING:
    import polars as pl

    from offline_core.data.curation.config import CompactionConfig, MergeConfig, PruningConfig, SplitConfig
    from offline_core.data.datasets.verify import Verified
    from offline_core.data.formats.exporting import ExportConfig, ExportResult
    from offline_core.data.import_plan.result import ImportPlan
    from offline_core.data.importing.config import ConversionConfig, ImportConfig
    from offline_core.data.quality.config import QualityConfig
    from offline_core.data.quality.result import QualityReport
    from offline_core.judging.estimation.config import OffPolicyConfig
    from offline_core.judging.estimation.result import OffPolicyResult
    from offline_core.judging.ranking.config import OutlierConfig
    from offline_core.judging.ranking.result import OutlierResult
    from offline_core.judging.sweeps.config import SweepConfig
    from offline_core.judging.sweeps.result import SweepResult
    from offline_core.learning.config import TrainingConfig
    from offline_core.learning.experts.config import ExpertConfig
    from offline_core.learning.experts.result import ExpertResult
    from offline_core.learning.fine_tuning.config import FineTuneConfig
    from offline_core.learning.fine_tuning.result import FineTuneResult
    from offline_core.learning.result import TrainingResult
    from offline_core.policies.evaluation.config import EvaluationConfig
    from offline_core.policies.evaluation.result import EvaluationResult
    from offline_core.policies.export_config import PolicyExportConfig, PolicyExportResult
    from offline_core.policies.recording.config import MixtureConfig, RecordingConfig, RecordingExport


@dataclass(frozen=True, slots=True, repr=False)
class Dataset(datasets.Dataset):
    """One version of a dataset, opened: its manifest is read, its episodes are not."""

    result: BaseModel | None = field(default=None, compare=False)
    """What the stage that wrote it reported; None if it was opened by its URI."""

    def episodes(self) -> Iterator[Episode]:
        """Its episodes one after the other, each once and validated.

        Raises:
            CorruptFileError, EpisodeError, UnsafeDataError: naming the file and the episode.
            SchemaError: step tables that were not imported.
        """
        return reader.episodes(self)

    def table(self) -> pl.DataFrame:
        """One row an episode: eps_id, t_started, length, return, terminated, truncated, success, policy_id.

        Raises:
            SchemaError: files that were not imported.
        """
        from offline_core.data.datasets.episode_index import episode_index  # here, as polars is slow to import

        return episode_index(self, (*columns.EPISODE_SUMMARY, columns.SUCCESS, columns.POLICY_ID))

    def prune(
        self, where: str | pl.Expr | None = None, *, output: Path, config: Given[PruningConfig] = None, **parameters: Any
    ) -> Dataset:
        """Call `prune` with this dataset."""
        return prune(self, where, output=output, config=config, **parameters)


def open_dataset(data: Data, version: int | None = None) -> Dataset:
    """Open a version of a dataset, the latest by default; a folder of RLlib's episode files is one, too.

    Raises:
        DatasetNotFoundError: there is no dataset.
        VersionNotFoundError: the dataset has no such version.
        CorruptFileError: its manifest cannot be read.
    """
    uri, known = place_of(data)
    return _opened(uri, known if version is None else version)


def train_expert(
    environment: str | EnvironmentSpec | None = None, *, output: Path, config: Given[ExpertConfig] = None, **parameters: Any
) -> ExpertResult:
    """Train a policy by PPO in a gymnasium environment, until `target_return` or `max_env_steps`.

    Arguments:
        environment: a gymnasium id, or an `EnvironmentSpec` with keyword arguments.
        output: folder of the checkpoints.
        parameters: fields of `ExpertConfig`.
    """
    from offline_core.learning.experts.config import ExpertConfig
    from offline_core.learning.experts.train import train_expert

    if environment is not None:
        parameters["environment"] = EnvironmentSpec(id=environment) if isinstance(environment, str) else environment
    return train_expert(config_of(ExpertConfig, config, parameters), output=os.fspath(output))


def record(
    policy: Trained,
    /,
    *,
    output: Path,
    export: Given[RecordingExport] = None,
    config: Given[RecordingConfig] = None,
    **parameters: Any,
) -> Dataset:
    """Play a policy for `episodes` complete episodes and write them as the next version of `output`.

    Arguments:
        export: where to write a second copy, and in which format: `{"output": "runs/minari", "format": "minari"}`.
        parameters: fields of `RecordingConfig`.
    """
    from offline_core.policies.recording.config import RecordingConfig, RecordingExport
    from offline_core.policies.recording.record import record_episodes

    parsed = config_of(RecordingConfig, config, parameters)
    copy = None if export is None else config_of(RecordingExport, export, {})
    return _made(record_episodes(parsed, policy=checkpoint_of(policy), output=os.fspath(output), export=copy))


def import_data(
    source: Path | Sequence[Path], /, *, output: Path, config: Given[ImportConfig] = None, **parameters: Any
) -> Dataset:
    """Import other people's data (RLlib, Minari, D4RL, LeRobot, Parquet, CSV, JSON, …) as the next version of `output`.

    Arguments:
        source: files or folders; `result.notes` of what comes back says how they were read.
        parameters: fields of `ImportConfig`; with `append=True` what is new is added to the latest version.
    """
    from offline_core.data.importing.config import ImportConfig
    from offline_core.data.importing.importing import import_dataset

    parsed = config_of(ImportConfig, config, parameters)
    return _made(import_dataset(parsed, source=_paths(source), output=os.fspath(output)))


def plan_import(source: Path | Sequence[Path], /, *, config: Given[ImportConfig] = None, **parameters: Any) -> ImportPlan:
    """Look at other people's data before it is imported: what the columns are taken for and why, and what is to decide.

    The first rows of a few files are read, and nothing is written. If `plan.is_ready`, `plan.config` is what `import_data`
    takes as its config; `print(plan)` shows it all.

    Arguments:
        source: files or folders.
        parameters: fields of `ImportConfig`; what is given stays as it is.
    """
    from offline_core.data.import_plan.plan import plan_import
    from offline_core.data.importing.config import ImportConfig

    return plan_import(config_of(ImportConfig, config, parameters), source=_paths(source))


def convert(data: Data, /, *, output: Path, config: Given[ConversionConfig] = None, **parameters: Any) -> Dataset:
    """Write the same episodes in the other storage format (`format`: episodes or table)."""
    from offline_core.data.curation.converting import convert_table
    from offline_core.data.importing.config import ConversionConfig

    parsed, (uri, version) = config_of(ConversionConfig, config, parameters), place_of(data)
    return _made(convert_table(parsed, dataset=uri, version=version, output=os.fspath(output)))


def prune(
    data: Data,
    /,
    where: str | pl.Expr | None = None,
    *,
    output: Path,
    config: Given[PruningConfig] = None,
    **parameters: Any,
) -> Dataset:
    """Keep the episodes that meet a condition, as the next version of `output`.

    Arguments:
        where: SQL on the columns of `Dataset.table` ("return >= 400 and length < 500"), or a Polars expression.
        parameters: fields of `PruningConfig`.
    """
    from offline_core.data.curation.config import PruningConfig
    from offline_core.data.curation.prune import prune_dataset

    if isinstance(where, str):
        parameters, where = {"where": where, **parameters}, None
    parsed, (uri, version) = config_of(PruningConfig, config, parameters), place_of(data)
    return _made(prune_dataset(parsed, dataset=uri, version=version, output=os.fspath(output), where=where))


def split(data: Data, /, *, output: Path, config: Given[SplitConfig] = None, **parameters: Any) -> tuple[Dataset, Dataset]:
    """Split the episodes into (train, held out), below `output`; equal episodes stay on one side."""
    from offline_core.data.curation.config import SplitConfig
    from offline_core.data.curation.split import split_dataset

    parsed, (uri, version) = config_of(SplitConfig, config, parameters), place_of(data)
    result = split_dataset(parsed, dataset=uri, version=version, output=os.fspath(output))
    return _made(result, result.train), _made(result, result.held_out)


def merge(datasets: Sequence[Data], /, *, output: Path, config: Given[MergeConfig] = None, **parameters: Any) -> Dataset:
    """Write the episodes of several datasets as one."""
    from offline_core.data.curation.config import MergeConfig
    from offline_core.data.curation.merge import merge_datasets

    parsed = config_of(MergeConfig, config, parameters)
    return _made(merge_datasets(parsed, datasets=[latest_of(each) for each in datasets], output=os.fspath(output)))


def mix(
    datasets: Mapping[Path, float] | None = None,
    *,
    output: Path,
    config: Given[MixtureConfig] = None,
    **parameters: Any,
) -> Dataset:
    """Write episodes of several datasets and policies, each with its share of the steps.

    Arguments:
        datasets: weight by URI of a dataset.
        parameters: fields of `MixtureConfig`; `policies` are weights by checkpoint.
    """
    from offline_core.policies.recording.config import MixtureConfig
    from offline_core.policies.recording.mixing import mix_datasets

    if datasets is not None:
        parameters["datasets"] = {os.fspath(uri): weight for uri, weight in datasets.items()}
    return _made(mix_datasets(config_of(MixtureConfig, config, parameters), output=os.fspath(output)))


def compact(data: Data, /, *, output: Path, config: Given[CompactionConfig] = None, **parameters: Any) -> Dataset:
    """Write the same episodes in fewer, larger files."""
    from offline_core.data.curation.compact import compact_dataset
    from offline_core.data.curation.config import CompactionConfig

    parsed, (uri, version) = config_of(CompactionConfig, config, parameters), place_of(data)
    return _made(compact_dataset(parsed, dataset=uri, version=version, output=os.fspath(output)))


def check(data: Data, /, *, config: Given[QualityConfig] = None, **parameters: Any) -> QualityReport:
    """Check a dataset against the rules of the quality gate; `verdict` is pass, warn or fail."""
    from offline_core.data.quality.check import check_dataset
    from offline_core.data.quality.config import QualityConfig

    parsed, (uri, version) = config_of(QualityConfig, config, parameters), place_of(data)
    return check_dataset(parsed, dataset=uri, version=version)


def outliers(data: Data, /, *, output: Path, config: Given[OutlierConfig] = None, **parameters: Any) -> OutlierResult:
    """Rank the episodes by how unlike the others they are, with reasons, and say which algorithm the dataset speaks for.

    Arguments:
        output: folder of the scores; `prune(data, "not is_outlier", outliers=result.uri, output=…)` acts on them.
        parameters: fields of `OutlierConfig`.
    """
    from offline_core.judging.ranking.config import OutlierConfig
    from offline_core.judging.ranking.outliers import find_outliers

    parsed, (uri, version) = config_of(OutlierConfig, config, parameters), place_of(data)
    return find_outliers(parsed, dataset=uri, version=version, output=os.fspath(output))


def train(data: Data, /, *, output: Path, config: Given[TrainingConfig] = None, **parameters: Any) -> TrainingResult:
    """Learn a policy from a dataset.

    Arguments:
        output: folder of the checkpoints `best` and `last`, and of the metrics.
        parameters: fields of `TrainingConfig`, such as `algorithm`; nested ones as mappings: `optimizer={"max_epochs": 5}`.
    """
    from offline_core.learning.config import TrainingConfig
    from offline_core.learning.train import train_policy

    parsed, (uri, version) = config_of(TrainingConfig, config, parameters), place_of(data)
    return train_policy(parsed, dataset=uri, version=version, output=os.fspath(output))


def fine_tune(
    training: Trained, data: Data, /, *, output: Path, config: Given[FineTuneConfig] = None, **parameters: Any
) -> FineTuneResult:
    """Go on by play from a training by iql, cal_ql, td3_bc and the like, with recorded and fresh steps.

    Arguments:
        training: its folder, or its result.
        data: a share of each batch is drawn from it.
        output: folder of the checkpoint `best`.
        parameters: fields of `FineTuneConfig`.
    """
    from offline_core.data.store.location import Location
    from offline_core.learning.fine_tuning.config import FineTuneConfig
    from offline_core.learning.fine_tuning.fine_tune import fine_tune_policy
    from offline_core.learning.result import TrainingResult

    folder = Location.of(training.last).parent.uri if isinstance(training, TrainingResult) else training
    if isinstance(folder, BaseModel):
        raise ConfigError(f"a {type(folder).__name__} is not the result of a training; give what offline.train returned")
    parsed, (uri, version) = config_of(FineTuneConfig, config, parameters), place_of(data)
    return fine_tune_policy(parsed, training=os.fspath(folder), dataset=uri, version=version, output=os.fspath(output))


def sweep(data: Data, /, *, output: Path, config: Given[SweepConfig] = None, **parameters: Any) -> SweepResult:
    """Train many settings with many seeds, and compare them; `grid={"algorithm": ["bc", "iql"]}, seeds=5`.

    Arguments:
        output: folder of the runs, each as `train` leaves it.
        parameters: fields of `SweepConfig`; `training` are the fields of `TrainingConfig` that all settings share.

    Raises:
        SweepError: runs failed; those that did not are reused by the next call.
    """
    from offline_core.judging.sweeps.config import SweepConfig
    from offline_core.judging.sweeps.sweep import enforce, sweep_settings

    parsed, (uri, version) = config_of(SweepConfig, config, parameters), place_of(data)
    result = sweep_settings(parsed, dataset=uri, version=version, output=os.fspath(output))
    enforce(result, parsed)
    return result


def evaluate(policy: Trained, /, *, config: Given[EvaluationConfig] = None, **parameters: Any) -> EvaluationResult:
    """Play a policy for `episodes` new episodes and measure its returns."""
    from offline_core.policies.evaluation.config import EvaluationConfig
    from offline_core.policies.evaluation.evaluate import evaluate_policy

    return evaluate_policy(config_of(EvaluationConfig, config, parameters), policy=checkpoint_of(policy))


def estimate(policy: Trained, data: Data, /, *, config: Given[OffPolicyConfig] = None, **parameters: Any) -> OffPolicyResult:
    """Estimate the return of a policy from episodes that another policy played, without an environment.

    Arguments:
        parameters: fields of `OffPolicyConfig`.

    Raises:
        PromotionError: an estimate is below `require_return`.
    """
    from offline_core.judging.estimation.config import OffPolicyConfig
    from offline_core.judging.estimation.estimate import enforce, estimate_policy

    parsed, (uri, version) = config_of(OffPolicyConfig, config, parameters), place_of(data)
    result = estimate_policy(parsed, policy=checkpoint_of(policy), dataset=uri, version=version)
    enforce(result, parsed)
    return result


def export(data: Data, /, *, output: Path, config: Given[ExportConfig] = None, **parameters: Any) -> ExportResult:
    """Write a dataset for other programs: Minari, LeRobot, D4RL, RLlib's JSON, or a writer of your own."""
    from offline_core.data.formats.exporting import ExportConfig, export_dataset

    parsed, (uri, version) = config_of(ExportConfig, config, parameters), place_of(data)
    return export_dataset(parsed, dataset=uri, version=version, output=os.fspath(output))


def export_policy(
    policy: Trained, /, *, output: Path, config: Given[PolicyExportConfig] = None, **parameters: Any
) -> PolicyExportResult:
    """Write a policy as a model for ONNX Runtime or `torch.export`."""
    from offline_core.policies.export import export_policy
    from offline_core.policies.export_config import PolicyExportConfig

    return export_policy(
        config_of(PolicyExportConfig, config, parameters), policy=checkpoint_of(policy), output=os.fspath(output)
    )


def verify(path: Path | Data) -> Iterator[Verified]:
    """Compare all datasets, checkpoints and results at `path` or below with their hashes, one after the other."""
    from offline_core.data.datasets.verify import verify

    uri, version = place_of(path)
    return verify(uri, version)


def _paths(source: Path | Sequence[Path]) -> str | list[str]:
    return os.fspath(source) if isinstance(source, str | os.PathLike) else [os.fspath(each) for each in source]


def _opened(uri: str, version: int | None, result: BaseModel | None = None) -> Dataset:
    opened = datasets.open_dataset(uri, version)
    return Dataset(opened.location, opened.manifest, opened.latest, result)


def _made(result: Any, ref: DatasetRef | None = None) -> Dataset:
    ref = ref or result.dataset
    return _opened(ref.uri, ref.version, result)
