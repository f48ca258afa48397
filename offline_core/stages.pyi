"""Written by `python -m tests.written`."""

from collections.abc import Callable, Mapping, Sequence
from offline_core.data.curation.config import CompactionConfig, MergeConfig, PruningConfig, SplitConfig
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.formats.exporting import ExportConfig, ExportResult
from offline_core.data.formats.publishing import PublishConfig, PublishResult
from offline_core.data.importing.columns_config import ColumnsConfig
from offline_core.data.importing.config import ConversionConfig, EpisodesConfig, ImportConfig
from offline_core.data.quality.config import QualityConfig
from offline_core.data.quality.result import QualityReport
from offline_core.door import Data, Dataset, Given, Judged, Path, Trained
from offline_core.judging.decisions.config import DecisionConfig, Guardrail
from offline_core.judging.decisions.result import DecisionResult
from offline_core.judging.estimation.config import EstimateConfig, FQEConfig
from offline_core.judging.estimation.result import EstimateResult
from offline_core.judging.ranking.config import OutlierConfig
from offline_core.judging.ranking.result import OutlierResult
from offline_core.judging.sweeps.config import Distribution, SweepConfig
from offline_core.judging.sweeps.result import SweepResult
from offline_core.keeping.homepage.config import ReportConfig, ReportResult
from offline_core.keeping.promotion.config import PromotionConfig, RollbackConfig
from offline_core.keeping.promotion.result import PromotionResult
from offline_core.keeping.retention.config import VacuumConfig
from offline_core.keeping.retention.vacuum import VacuumResult
from offline_core.learning.algorithms.awac import AWAC
from offline_core.learning.algorithms.bc import BC
from offline_core.learning.algorithms.bcq import BCQ
from offline_core.learning.algorithms.cal_ql import CalQL
from offline_core.learning.algorithms.cql import CQL
from offline_core.learning.algorithms.dqn import DQN
from offline_core.learning.algorithms.dt import DT
from offline_core.learning.algorithms.iql import IQL
from offline_core.learning.algorithms.marwil import MARWIL
from offline_core.learning.algorithms.ppo import PPO
from offline_core.learning.algorithms.rebrac import ReBRAC
from offline_core.learning.algorithms.sac import SAC
from offline_core.learning.algorithms.td3 import TD3
from offline_core.learning.algorithms.td3_bc import TD3BC
from offline_core.learning.config import ComputeConfig, DataConfig, EvaluationDuringTraining, SequencesConfig, TrainingConfig
from offline_core.learning.experts.config import ExpertConfig, ExpertOptimizer, ExpertRecording
from offline_core.learning.fine_tuning.config import FineTuneConfig, FineTuneEvaluations, FineTuneOptimizer, FineTuneReplay
from offline_core.learning.result import ExpertResult, FineTuneResult, TrainingResult
from offline_core.learning.trainer_config import EvaluationsConfig, KeepConfig, OptimizerConfig, ReplayConfig, TorchConfig
from offline_core.policies.config import NetworkConfig
from offline_core.policies.evaluation import EvaluationConfig, EvaluationResult
from offline_core.policies.export_config import PolicyExportConfig, PolicyExportResult
from offline_core.policies.recording.config import RecordingConfig, RecordingExport, VideoConfig
from offline_core.policies.recording.mixing import MixtureConfig
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.python_object import PythonObject
from offline_core.runtime.user_code import UserCode
from typing import Any, Literal
import polars as pl

def train_expert(
    environment: EnvironmentSpec | Mapping[str, Any] | str | None = ...,
    *,
    output: Path,
    config: Given[ExpertConfig] = ...,
    on_metrics: Callable[[dict[str, Any]], object] | None = ...,
    algorithm: Literal['ppo', 'sac', 'td3'] = ...,
    preset: str | None = ...,
    network: NetworkConfig | Mapping[str, Any] = ...,
    initial_policy: Trained | None = ...,
    ppo: PPO | Mapping[str, Any] = ...,
    sac: SAC | Mapping[str, Any] = ...,
    td3: TD3 | Mapping[str, Any] = ...,
    replay: ReplayConfig | Mapping[str, Any] = ...,
    optimizer: ExpertOptimizer | Mapping[str, Any] = ...,
    seed: int = ...,
    total_steps: int = ...,
    num_envs: int = ...,
    rollout_steps: int = ...,
    rollouts_per_iteration: int = ...,
    evaluation: EvaluationsConfig | Mapping[str, Any] = ...,
    recording: ExpertRecording | Mapping[str, Any] | None = ...,
    snapshots_at_returns: list[float] = ...,
    compute: TorchConfig | Mapping[str, Any] = ...,
) -> ExpertResult:
    """Train an expert with PPO, SAC or TD3 until it reaches a target return.

    It ends when the mean return of an evaluation reaches the target, or the steps are used up. An `initial_policy` is
    evaluated first, so the result is never worse. The same `config` makes the same policy, to the bit, on the same machine
    and number of Torch threads.

        <output>/best               the checkpoint with the best evaluation so far, replaced at each improvement
        <output>/snapshots/<return> the first policies that reached `config.snapshots_at_returns`
        <output>/recording          a dataset of episodes played during training, if `config.recording` is set
        <output>/metrics.jsonl      one line an iteration, and one an evaluation
        <output>/checkpoints        the last two states of an unfinished training
        <output>/result.json        the result, which the same call reuses

    A training that was killed goes on from its last state when it is called again. Environments cannot be stored, so new
    episodes begin there, and the policy differs from that of an unbroken training.

    Arguments:
        output: folder for the checkpoint.
        environment: where the expert learns and is evaluated.
        config: all parameters, or some by name; the other keywords are the fields of `ExpertConfig`.
        on_metrics: called with each record of the metrics, a dict, at the end of each iteration; what it raises ends the training.

    Raises:
        ConfigError: the environment is unknown or not installed, its spaces are not supported, or `initial_policy` has others;
            nothing is written.
        CheckpointError: `initial_policy` is not a checkpoint, or was replaced meanwhile.
        StorageError: `output` cannot be written; found before training.
        BusyError: another run is writing to `output`.
        LearningError: the loss became NaN or infinite.
    """
    ...


def record(
    policy: Trained,
    /,
    *,
    output: Path,
    export: Given[RecordingExport] = ...,
    config: Given[RecordingConfig] = ...,
    episodes: int = ...,
    rounds: int = ...,
    format: Literal['episodes', 'table'] = ...,
    explore: bool = ...,
    seed: int | None = ...,
    num_recorders: Literal['auto'] | int = ...,
    cpus_per_recorder: float = ...,
    envs_per_recorder: int = ...,
    keep_action_distribution: bool = ...,
    max_recorder_restarts: int = ...,
    environment: EnvironmentSpec | Mapping[str, Any] | str | None = ...,
    files: FilesConfig | Mapping[str, Any] = ...,
    video: VideoConfig | Mapping[str, Any] | None = ...,
) -> Dataset:
    """Record complete episodes of a policy as the next version of a dataset.

    It plays `rounds` times `episodes`. The version appears whole when all rounds are done, or not at all. After a failure no
    manifest lists the files already written; the same recording writes them again under the same names. The same recording
    from before is reused.

    Arguments:
        policy: checkpoint of the policy to play.
        output: folder of the dataset to write.
        export: a second copy of the recording, in a format or by a writer of your choice.
        config: all parameters, or some by name; the other keywords are the fields of `RecordingConfig`.

    Raises:
        CheckpointError: `policy` is not a checkpoint.
        ConfigError: the environment cannot be made, does not fit the policy, or does not render though clips are asked for; or
            a recorder fits on no node.
        StorageError: the output cannot be written; checked before anything is played.
        ClusterError: no Ray answers at `RAY_ADDRESS`.
        DataError: the format of `export` cannot hold an episode; the recording is committed by then.
        RecorderError: a task lost its recorder more often than `max_recorder_restarts`, or no node is left.
    """
    ...


def import_data(
    source: Path | Sequence[Path],
    /,
    *,
    output: Path,
    config: Given[ImportConfig] = ...,
    mapping: dict[str, str | list[str]] = ...,
    columns: ColumnsConfig | Mapping[str, Any] = ...,
    episodes: EpisodesConfig | Mapping[str, Any] = ...,
    environment: EnvironmentSpec | Mapping[str, Any] | str | None = ...,
    observation_space: dict[str, Any] | None = ...,
    action_space: dict[str, Any] | None = ...,
    recorded_action_range: tuple[float, float] | None = ...,
    unreadable: Literal['fail', 'quarantine'] = ...,
    format: Literal['episodes', 'table'] = ...,
    engine: Literal['local', 'ray'] = ...,
    partitions: int | None = ...,
    files: FilesConfig | Mapping[str, Any] = ...,
) -> Dataset:
    """Import experience of any kind: recordings of RLlib, tables, Minari and D4RL files, CSV and more.

    It becomes the next version of the dataset at `output`.

    Arguments:
        source: files, folders or patterns with * or **, of RLlib, tables, Minari, D4RL, CSV …
        output: folder of the dataset to write.
        config: all parameters, or some by name; the other keywords are the fields of `ImportConfig`.

    Raises:
        ConfigError: the parameters do not fit each other or the data.
        DataError: a row or file cannot be read (and `unreadable` is "fail"), with its place; nothing is committed.
        EmptyDatasetError: there is nothing to import.
    """
    ...


def convert(
    dataset: Data,
    /,
    *,
    output: Path,
    config: Given[ConversionConfig] = ...,
    format: Literal['episodes', 'table'] = ...,
    files: FilesConfig | Mapping[str, Any] = ...,
    engine: Literal['local', 'ray'] = ...,
) -> Dataset:
    """Write a dataset an episode a row, or a step a row, losing nothing.

    The episodes stay in their order: the next version of `output`.
    Memory: one row group for each process, whatever the size of the dataset.

    Arguments:
        dataset: folder of the dataset to read.
        output: folder of the dataset to write.
        config: all parameters, or some by name; the other keywords are the fields of `ConversionConfig`.

    Raises:
        DataError: an episode cannot be read, or the format cannot hold it; the message names file and episode.
    """
    ...


def check(
    dataset: Data,
    /,
    *,
    config: Given[QualityConfig] = ...,
    stop_on: Literal['fail', 'warn', 'never'] = ...,
    held_out: str | None = ...,
    max_saturated_fraction: float = ...,
    max_duplicate_fraction: float = ...,
    max_time_limit_fraction: float = ...,
    rules: list[UserCode | Mapping[str, Any]] = ...,
) -> QualityReport:
    """Check every step of a dataset by the quality rules, and stop if it fails.

    What they find is reported, and raised by `enforce` alone. The report is stored with the data, at
    `<dataset>/_checks/<version>.json`, if the dataset has a manifest.

    Arguments:
        dataset: folder of the dataset to read.
        config: all parameters, or some by name; the other keywords are the fields of `QualityConfig`.

    Raises:
        ConfigError: a user's rule cannot be made, or returns no finding with a name of its own.
        DataError: such a rule failed, and so cannot judge; the message names it.
        CorruptFileError: a file is not there, or its SHA-256 is not that of the manifest; the message names it.
        DataError: something cannot be read, and so cannot be judged; the message names the file.
    """
    ...


def outliers(
    dataset: Data,
    /,
    *,
    output: Path,
    config: Given[OutlierConfig] = ...,
    threshold: float = ...,
    common_share: float = ...,
    max_steps: int = ...,
    updates: int = ...,
    target_return: float | None = ...,
    seed: int = ...,
) -> OutlierResult:
    """Rank the episodes by how unlike the others they are, and say which algorithm the dataset speaks for.

    Each is scored by the feature in which it is farthest from the others, in robust standard deviations.

    Features are returns, lengths, ends and gaps, of each number of observations, actions and rewards its mean, spread, largest
    jump and how often it stays, and the surprise of actions, of transitions and of rewards to models that were fitted to other
    episodes. What is an extra column, which no policy sees, is not compared. The data is read twice. Memory: 12 bytes a step,
    and what `max_steps` steps take.

    Arguments:
        dataset: folder of the dataset to read.
        output: folder for the scores.
        config: all parameters, or some by name; the other keywords are the fields of `OutlierConfig`.

    Raises:
        EmptyDatasetError: there is no step.
        SchemaError: the episodes do not have the same columns; or the files were never imported.
        CorruptFileError: a file is damaged.
    """
    ...


def prune(
    dataset: Data,
    /,
    where: str | pl.Expr | None = ...,
    *,
    output: Path,
    config: Given[PruningConfig] = ...,
    marked: Literal['keep', 'drop'] = ...,
    drop_non_finite: bool = ...,
    outliers: str | None = ...,
    drop_duplicates: bool = ...,
    filters: list[UserCode | Mapping[str, Any]] = ...,
    keep_top_fraction: float | None = ...,
    where_steps: str | None = ...,
    columns: list[str] | None = ...,
    new_since: int | None = ...,
    files: FilesConfig | Mapping[str, Any] = ...,
) -> Dataset:
    """Keep the episodes that meet some conditions, as the next version of a dataset.

    Row groups without any episode to keep are never read; the bytes of an episode are copied as they are, unless
    `where_steps` cuts it into pieces.

    Arguments:
        dataset: folder of the dataset to read.
        output: folder of the dataset to write.
        where: SQL condition on an episode's columns eps_id, t_started, length, return, terminated, truncated, success, policy_id, content: return >= 400 and length <= 500. NaN and null meet no condition.
        config: all parameters, or some by name; the other keywords are the fields of `PruningConfig`.

    Raises:
        ConfigError: a condition cannot be understood, or names an unknown column; the scores are not of this version; a
            filter cannot be made, or gives something else than True or False.
        DataError: a filter failed on an episode, which the message names.
        EmptyDatasetError: nothing meets them; nothing is committed.
    """
    ...


def compact(
    dataset: Data,
    /,
    *,
    output: Path,
    config: Given[CompactionConfig] = ...,
    files: FilesConfig | Mapping[str, Any] = ...,
) -> Dataset:
    """Copy a dataset into files of another size.

    Its episodes are copied in their order and byte for byte: the next version of `output`.

    Arguments:
        dataset: folder of the dataset to read.
        output: folder of the dataset to write.
        config: all parameters, or some by name; the other keywords are the fields of `CompactionConfig`.
    """
    ...


def split(
    dataset: Data,
    /,
    *,
    output: Path,
    config: Given[SplitConfig] = ...,
    held_out_fraction: float = ...,
    by: str = ...,
    equal_episodes: Literal['together', 'apart'] = ...,
    strata: int = ...,
    seed: int = ...,
    files: FilesConfig | Mapping[str, Any] = ...,
) -> tuple[Dataset, Dataset]:
    """Split a dataset by episode into train and held_out, with the same spread of returns.

    Each episode is copied into the next version of either `<output>/train` or `<output>/held_out`, in the order it had.

    Arguments:
        dataset: folder of the dataset to read.
        output: folder for the two datasets, train and held_out.
        config: all parameters, or some by name; the other keywords are the fields of `SplitConfig`.

    Raises:
        EmptyDatasetError: one of the sides would have no episode; nothing is written.
    """
    ...


def merge(
    datasets: Sequence[Data],
    /,
    *,
    output: Path,
    config: Given[MergeConfig] = ...,
    files: FilesConfig | Mapping[str, Any] = ...,
) -> Dataset:
    """Copy the episodes of several datasets, each once, into one.

    They are copied in the order of the datasets, into the next version of `output`.

    Arguments:
        datasets: folders of the datasets to read.
        output: folder of the dataset to write.
        config: all parameters, or some by name; the other keywords are the fields of `MergeConfig`.

    Raises:
        ConfigError: no datasets are given.
        SchemaError: they differ in format, spaces, columns or their types, going by the first episode of each; the
            message lists all differences. Or their observations are made of raw columns in different ways.
        EpisodeError: two of them have different episodes of the same id.
    """
    ...


def mix(
    datasets: dict[str, float] | None = ...,
    *,
    output: Path,
    config: Given[MixtureConfig] = ...,
    policies: dict[str, float] = ...,
    environment: EnvironmentSpec | Mapping[str, Any] | str | None = ...,
    steps: int = ...,
    seed: int = ...,
    format: Literal['episodes', 'table'] = ...,
    files: FilesConfig | Mapping[str, Any] = ...,
) -> Dataset:
    """Write whole episodes of datasets and playing policies, by weight in steps.

    They are the next version of `output`. The dataset names the environment of its sources if they share one.

    Arguments:
        output: folder of the dataset to write.
        datasets: weight by folder of a dataset: {"runs/expert-recording": 0.7, "runs/random": 0.3}.
        config: all parameters, or some by name; the other keywords are the fields of `MixtureConfig`.

    Raises:
        ConfigError: no source is given, a weight is not above zero, or spaces differ.
    """
    ...


def publish(
    dataset: Data,
    /,
    *,
    config: Given[PublishConfig] = ...,
    format: Literal['delta', 'iceberg'] = ...,
) -> PublishResult:
    """Make a Delta or Iceberg table show a version by its own files, for Spark, DuckDB and Polars.

    Nothing is copied: it is the next commit of the table.

    The version gets the tag `published-<format>`, so that its files stay, as soon as the table shows it; until then, it has
    the tag `publishing-<format>-<version>`, and the version that the table shows keeps the other one. A version that is shown
    already is not committed again.

    Arguments:
        dataset: folder of the dataset to read.
        config: all parameters, or some by name; the other keywords are the fields of `PublishConfig`.

    Raises:
        ConfigError: the extra of the format is missing.
        SchemaError: the table cannot hold a column.
    """
    ...


def export(
    dataset: Data,
    /,
    *,
    output: Path,
    config: Given[ExportConfig] = ...,
    format: str | PythonObject = ...,
    arguments: dict[str, Any] = ...,
) -> ExportResult:
    """Write a dataset for Minari, LeRobot, RLlib (sample_batch), D4RL or a writer of your own.

    All episodes are written, or nothing is. An older export at `output` is replaced. A user's writer is always called, as its
    results are not tracked.

    Arguments:
        dataset: folder of the dataset to read.
        output: folder to write; an existing export is replaced, nothing else is.
        config: all parameters, or some by name; the other keywords are the fields of `ExportConfig`.

    Raises:
        ConfigError: there is no such format, or it does not take the arguments.
        DataError: the format cannot hold an episode; the message names it.
        StorageError: `output` holds something else, or cannot be written.
        BusyError: another run was first.
    """
    ...


def train(
    dataset: Data,
    /,
    *,
    output: Path,
    config: Given[TrainingConfig] = ...,
    on_metrics: Callable[[dict[str, Any]], object] | None = ...,
    algorithm: str | UserCode | Mapping[str, Any] = ...,
    bc: BC | Mapping[str, Any] = ...,
    marwil: MARWIL | Mapping[str, Any] = ...,
    dqn: DQN | Mapping[str, Any] = ...,
    iql: IQL | Mapping[str, Any] = ...,
    cql: CQL | Mapping[str, Any] = ...,
    cal_ql: CalQL | Mapping[str, Any] = ...,
    bcq: BCQ | Mapping[str, Any] = ...,
    td3_bc: TD3BC | Mapping[str, Any] = ...,
    rebrac: ReBRAC | Mapping[str, Any] = ...,
    awac: AWAC | Mapping[str, Any] = ...,
    dt: DT | Mapping[str, Any] = ...,
    sac: SAC | Mapping[str, Any] = ...,
    td3: TD3 | Mapping[str, Any] = ...,
    preset: str | None = ...,
    seed: int = ...,
    network: NetworkConfig | Mapping[str, Any] = ...,
    initial_policy: Trained | None = ...,
    sequences: SequencesConfig | Mapping[str, Any] = ...,
    optimizer: OptimizerConfig | Mapping[str, Any] = ...,
    evaluation: EvaluationDuringTraining | Mapping[str, Any] = ...,
    keep: KeepConfig | Mapping[str, Any] | None = ...,
    data: DataConfig | Mapping[str, Any] = ...,
    compute: ComputeConfig | Mapping[str, Any] = ...,
) -> TrainingResult:
    """Learn a policy from recorded experience.

    Writes checkpoints `best` and `last`, metrics and TensorBoard files. The same dataset version and parameters give the same
    policy, bit for bit, on one kind of machine. An unfinished run resumes from its last state when it is called again; a
    finished one is reused.

    Arguments:
        dataset: folder of the dataset to read.
        output: folder for checkpoints and metrics.
        config: all parameters, or some by name; the other keywords are the fields of `TrainingConfig`.
        on_metrics: called with each record of the metrics, a dict, at the end of each iteration; what it raises ends the training.

    Raises:
        DatasetNotFoundError, VersionNotFoundError, EmptyDatasetError: There are no steps to learn from.
        DataError: The data is invalid.
        ConfigError: The algorithm cannot act in these spaces, or `initial_policy` has others or another network.
        CheckpointError: `initial_policy` is not a checkpoint, or was replaced meanwhile.
        LearningError: The loss is NaN or infinite, or too many learners were lost.
        StorageError: The output cannot be written; checked before training.
        BusyError: Another run is writing there.
    """
    ...


def fine_tune(
    training: Trained,
    dataset: Data,
    /,
    *,
    output: Path,
    config: Given[FineTuneConfig] = ...,
    on_metrics: Callable[[dict[str, Any]], object] | None = ...,
    environment: EnvironmentSpec | Mapping[str, Any] | str | None = ...,
    offline_share: float = ...,
    roll_back_after: int | None = ...,
    seed: int = ...,
    total_steps: int = ...,
    num_envs: int = ...,
    rollouts_per_iteration: int = ...,
    replay: FineTuneReplay | Mapping[str, Any] = ...,
    optimizer: FineTuneOptimizer | Mapping[str, Any] = ...,
    evaluation: FineTuneEvaluations | Mapping[str, Any] = ...,
    compute: TorchConfig | Mapping[str, Any] = ...,
) -> FineTuneResult:
    """Go on by play from a training by iql, cal_ql, td3_bc and the like, with recorded and fresh steps.

    It begins with the networks that the training ended with (Ball et al. 2023, arXiv 2302.02948). The policy is evaluated
    first, and the best one is kept, so the result is never worse.

        <output>/best            the checkpoint with the best evaluation so far
        <output>/metrics.jsonl   one line an iteration, and one an evaluation
        <output>/checkpoints     the last two states of an unfinished run, which the same call goes on from

    Arguments:
        training: folder of the training.
        dataset: folder of the dataset to read.
        output: folder for the checkpoint.
        config: all parameters, or some by name; the other keywords are the fields of `FineTuneConfig`.
        on_metrics: called with each record of the metrics, a dict, at the end of each iteration; what it raises ends the training.

    Raises:
        ConfigError: The training cannot go on by play, or its policy does not fit the environment; nothing is written.
        CorruptFileError: The networks of the training are not those that it wrote.
        DatasetNotFoundError, VersionNotFoundError: There is no such dataset.
        LearningError: The loss became NaN or infinite.
        BusyError: Another run is writing to `output`.
    """
    ...


def sweep(
    dataset: Data,
    /,
    *,
    output: Path,
    config: Given[SweepConfig] = ...,
    training: TrainingConfig | Mapping[str, Any] = ...,
    grid: dict[str, list[Any]] = ...,
    random: dict[str, Distribution | Mapping[str, Any] | list[Any]] = ...,
    search: Literal['random', 'optuna'] = ...,
    samples: int = ...,
    seeds: int | list[int] = ...,
    seed: int = ...,
    score: Literal['auto', 'last_return', 'best_return', 'held_out_loss', 'estimate'] = ...,
    estimate: EstimateConfig | Mapping[str, Any] = ...,
    estimate_on: str | None = ...,
    min_overlap: float = ...,
    parallel: Literal['auto'] | int = ...,
    confidence: float = ...,
    resamples: int = ...,
) -> SweepResult:
    """Train many settings with many seeds, and compare them.

    A run is in `<output>/runs/<digest of the setting>/<seed>`, and what `train` makes of the same parameters, however
    many train at once. A finished one is reused, an unfinished one resumes; so a sweep that is killed, or gets more settings
    or seeds, makes only what is missing. A run that fails ends no other one: see `enforce`. A search goes on by itself until
    all samples are tried, and is resumed likewise. Runs that are compared by an estimate are judged once all are trained, or
    all of a search's round.

    Arguments:
        dataset: folder of the dataset to read.
        output: folder for all runs and their comparison.
        config: all parameters, or some by name; the other keywords are the fields of `SweepConfig`.

    Raises:
        ConfigError: A setting is invalid, does not fit the data, runs cannot be compared, or Optuna is not installed:
            before anything starts. Or a search came upon values that cannot be.
        StorageError, DataError: The dataset cannot be opened, or nothing can be estimated from the data that was named for it.
        LearningError: A Q function of an estimate grew beyond every number.
        SweepError: All runs failed.
        BusyError: Another sweep is writing there.
    """
    ...


def evaluate(
    policy: Trained,
    /,
    *,
    config: Given[EvaluationConfig] = ...,
    episodes: int = ...,
    seed: int = ...,
    explore: bool = ...,
    environment: EnvironmentSpec | Mapping[str, Any] | str | None = ...,
    num_envs: int = ...,
    metrics: list[UserCode | Mapping[str, Any]] = ...,
) -> EvaluationResult:
    """Play a policy on start states that no other stage has seen.

    The result of the `episodes` whole episodes is kept at `<policy>/_evaluations`.

    Arguments:
        policy: checkpoint of the policy to play.
        config: all parameters, or some by name; the other keywords are the fields of `EvaluationConfig`.

    Raises:
        CheckpointError: `policy` is not a checkpoint.
        ConfigError: no environment is known, or it cannot be made; a user metric cannot be made, fails, returns a value
            that is not a finite number, or repeats the name of another.
    """
    ...


def estimate(
    policy: Judged,
    dataset: Data,
    /,
    *,
    config: Given[EstimateConfig] = ...,
    gamma: float = ...,
    horizon: Literal['auto', 'recorded', 'continuing'] | int = ...,
    methods: list[Literal['is', 'wis', 'pdis', 'wpdis', 'cis', 'fqe', 'dr', 'drs', 'wdr']] = ...,
    explore: bool = ...,
    behaviour: str | None = ...,
    noise: float | None = ...,
    fqe: FQEConfig | Mapping[str, Any] = ...,
    confidence: float = ...,
    resamples: int = ...,
    seed: int = ...,
    require_return: float | None = ...,
    gate_method: Literal['is', 'wis', 'pdis', 'wpdis', 'cis', 'fqe', 'dr', 'drs', 'wdr'] = ...,
    min_effective_episodes: float = ...,
) -> EstimateResult:
    """Estimate a policy's return from recorded episodes without playing it, and stop if it is too little.

    What the policy would come to where the dataset was recorded, by each method, with an interval. The result is kept at
    `<policy>/_estimates`, or at `<dataset>/_estimates` if the policy is no checkpoint. What the policy has to come to is not
    looked at here: see `enforce`.

    Arguments:
        policy: checkpoint or ONNX file of the policy to estimate; or rule:…, function:package.module:name, column:…, another dataset.
        dataset: folder of the dataset to read.
        config: all parameters, or some by name; the other keywords are the fields of `EstimateConfig`.

    Raises:
        CheckpointError: there is no policy, or no behaviour.
        ConfigError: the policy does not fit the data or the behaviour, or a method does not fit the policy.
        DataError: the data is not what it has to be, or a clone of a behaviour is too far off; SchemaError if the
            probabilities of its actions are unknown.
        LearningError: the Q function grew beyond every number.
    """
    ...


def decide(
    dataset: Data,
    candidates: Judged | Sequence[Judged],
    /,
    *,
    output: Path,
    config: Given[DecisionConfig] = ...,
    against: Trained = ...,
    registry: str | None = ...,
    by: str = ...,
    judge_share: float = ...,
    finalists: int = ...,
    risk: float = ...,
    margin: float = ...,
    guardrails: list[Guardrail | Mapping[str, Any]] = ...,
    group: list[str] = ...,
    min_overlap: float = ...,
    estimate: EstimateConfig | Mapping[str, Any] = ...,
    clone_updates: int = ...,
    examine_updates: int = ...,
    seed: int = ...,
) -> DecisionResult:
    """Say from a log which of several policies may replace what runs today.

    Candidates are held against what runs today, on episodes that none of them learned from or was chosen by.

    One side of the log ranks the candidates, the other judges the first of them: the difference to what runs today on the
    same episodes, by wdr with cross-fitting, at a risk over all that are judged. What cannot be judged is refused.

    Arguments:
        dataset: folder of the dataset to read.
        candidates: checkpoints, ONNX files, rule:price * 0.95, function:package.module:name, a column of the log with probabilities (column:new_policy), or another dataset: the behaviour that recorded it.
        output: folder for the decision and both sides of the log.
        config: all parameters, or some by name; the other keywords are the fields of `DecisionConfig`.

    Raises:
        CheckpointError: A candidate cannot be read.
        ConfigError: A policy does not fit the data, or a guardrail its columns.
        DataError: The log is not what it has to be, or has too few episodes for two sides.
    """
    ...


def promote(
    source: Trained,
    /,
    *,
    registry: Path,
    config: Given[PromotionConfig] = ...,
    alias: str = ...,
    override: str | None = ...,
    moved_by: str | None = ...,
) -> PromotionResult:
    """Move an alias of the registry, champion by default, to the policy that a decision promotes.

    The checkpoint is copied into the registry, and the alias names it by one exclusive create. If the alias names that policy
    already, nothing is moved.

    Arguments:
        registry: folder of the registry and name of the policy in it.
        source: folder of the decision; with override=… also the checkpoint of a policy.
        config: all parameters, or some by name; the other keywords are the fields of `PromotionConfig`.

    Raises:
        PromotionError: The decision does not allow it, its checkpoint has changed since, the alias was moved meanwhile, or the
            name is that of a policy of other spaces, columns or labels.
        CheckpointError: There is no policy, or it is damaged.
        CorruptFileError: The decision or the history is not what was written.
        ConfigError: The name is none, or a registry was given in its place.
    """
    ...


def rollback(
    registry: Path,
    /,
    *,
    config: Given[RollbackConfig] = ...,
    alias: str = ...,
    reason: str | None = ...,
    moved_by: str | None = ...,
) -> PromotionResult:
    """Move an alias of the registry back to the policy that it named before.

    That is itself a move in the history. A second rollback goes one policy further back, and never forth to one that was
    rolled back.

    Arguments:
        registry: folder of the registry and name of the policy in it.
        config: all parameters, or some by name; the other keywords are the fields of `RollbackConfig`.

    Raises:
        PromotionError: There is no such alias, nothing before, that policy is damaged, or the alias was moved meanwhile.
        CorruptFileError: The history is not what was written.
        StorageError: The storage does not answer, so that it is not known whether the alias has moved.
        ConfigError: The name is none.
    """
    ...


def vacuum(
    root: Path,
    /,
    *,
    config: Given[VacuumConfig] = ...,
    keep_versions: int = ...,
    older_than_days: float = ...,
    keep_needed: bool = ...,
    leftovers_older_than_days: float = ...,
    delete: bool = ...,
) -> VacuumResult:
    """List old versions of the datasets below a folder, and files that belong to none, or delete them for good.

    A version's manifest goes first and its files then, so a killed vacuum leaves whole versions and leftovers. Files that a
    version that stays lists are never deleted: versions share files. A dataset that a run is writing to stays as it is,
    whatever the age of its files, as that run may be about to list them; runs that begin meanwhile wait.

    Arguments:
        root: folder of a dataset, or one that holds some.
        config: all parameters, or some by name; the other keywords are the fields of `VacuumConfig`.

    Raises:
        DatasetNotFoundError: there is no dataset.
        CorruptFileError, CheckpointError: a manifest cannot be read, so it is not known what it needs; nothing is deleted.
        StorageError: the storage does not answer, or a file cannot be deleted.
    """
    ...


def report(
    root: Path,
    /,
    *,
    output: Path | None = ...,
    config: Given[ReportConfig] = ...,
    episodes: int = ...,
    listed: int = ...,
    runs_url: str = ...,
    seed: int = ...,
) -> ReportResult:
    """Make one HTML page of a root: datasets and their episodes, experiments, policies, decisions, lineage.

    A file that cannot be read is named on the page and in the result; the rest is shown.

    Arguments:
        root: folder with all that was made.
        output: HTML file to write; report.html in the root if none is given.
        config: all parameters, or some by name; the other keywords are the fields of `ReportConfig`.

    Raises:
        StorageError: the root cannot be listed, or the file cannot be written.
    """
    ...


def export_policy(
    policy: Trained,
    /,
    *,
    output: Path,
    config: Given[PolicyExportConfig] = ...,
    formats: list[Literal['onnx', 'torch_export']] = ...,
    tolerance: float = ...,
    seed: int = ...,
    latency_calls: int = ...,
) -> PolicyExportResult:
    """Write a policy as ONNX or for Torch, and show that it does the same there.

    Each model is written, loaded again, and held against the policy on observations drawn from its space. Its graph
    begins with these: `policy.observations_of(rows)` makes them of raw rows, and the export says what their numbers are.

    Arguments:
        policy: checkpoint of the policy to export.
        output: folder for the models; an existing export is replaced.
        config: all parameters, or some by name; the other keywords are the fields of `PolicyExportConfig`.

    Raises:
        CheckpointError: there is no policy.
        ConfigError: a package is missing, the policy cannot be written in a format, or does something else there; nothing
            is written then.
        StorageError: the output cannot be written.
        BusyError: another run is writing there.
    """
    ...

