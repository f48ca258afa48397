"""The functions of `import offline_core as offline`: stages, data first, and what looks at or looks after what was made.

    expert = offline.train_expert("CartPole-v1", output="runs/expert")
    data = offline.record(expert, episodes=500, output="runs/recording")
    run = offline.train(data, algorithm="marwil", output="runs/policy")
    decision = offline.decide("runs/log", [run], output="runs/decision")
    offline.promote(decision, registry="runs/registry/hvac")

Data is a URI, a `DatasetRef`, an opened `Dataset`, or the result of a stage that read or wrote a dataset. A policy is the URI
of a checkpoint, the address of a registered one (`runs/registry/hvac@champion`), or the result of a stage that trained one.
Each keyword is a field of the stage's config (`offline VERB --show-config` lists them); `config` takes a whole one, or a
mapping of the same fields, and keywords win over it.

All stages raise `ConfigError` for a parameter that is unknown or out of bounds, before anything starts, and reuse the result
of the same parameters on the same data. `stages` makes their functions of the list of stages; its stub has their types.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from pydantic import BaseModel

from offline_core.data.datasets import dataset as datasets
from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.episodes import columns
from offline_core.errors import ConfigError
from offline_core.runtime.config import Config, parse
from offline_core.runtime.stage import STAGES, Argument, Stage, load
from offline_core.runtime.user_code import UserCode

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from offline_core.data.curation.config import PruningConfig
    from offline_core.data.datasets.about import About
    from offline_core.data.datasets.random_access import Episodes, RandomAccess
    from offline_core.data.datasets.verify import Verified
    from offline_core.data.episodes import Episode
    from offline_core.data.episodes.nested import Nested
    from offline_core.data.importing.config import ImportConfig
    from offline_core.data.importing.planning.result import ImportPlan
    from offline_core.judging.decisions.explanation import Explanation
    from offline_core.keeping.description import DatasetDescription
    from offline_core.keeping.retention.config import ForgetConfig
    from offline_core.keeping.retention.forget import ForgetResult
    from offline_core.learning.torch_batches import TorchBatches
    from offline_core.policies.registry import History

Path: TypeAlias = str | os.PathLike[str]
"""A path, or a URI such as `s3://bucket/runs`."""
Data: TypeAlias = Path | DatasetRef | datasets.Dataset | BaseModel
Trained: TypeAlias = Path | BaseModel
Judged: TypeAlias = Trained | datasets.Dataset | Callable[..., Any]
"""A policy, a dataset, a rule and the like as a text, or a function of observations; see `Contender`."""
AnyConfig = TypeVar("AnyConfig", bound=Config)
Given: TypeAlias = AnyConfig | Mapping[str, Any] | None
"""A config, its fields by name, or None: the defaults."""


@dataclass(frozen=True, slots=True, repr=False)
class Dataset(datasets.Dataset):
    """One version of a dataset, opened: its manifest is read, its episodes are when they are asked for.

    len(data), data[3], data["17@2026"]           episodes by number or id; data[10:20] is a view of some
    for episode in data: …                        all of them, read one after the other
    data.sample(256, seed=0)                      steps, drawn from all alike, as numpy arrays
    data.to_torch(batch_size=256)                 each step once an epoch, as tensors
    data.describe(), data.table()                 what is in it; one row an episode
    """

    result: BaseModel | None = field(default=None, compare=False)
    """What the stage that wrote it reported; None if it was opened by its URI."""
    _access: list[RandomAccess] = field(default_factory=list, init=False, compare=False)
    """Made when it is first needed."""

    def __len__(self) -> int:
        """Return how many episodes it has; pieces of one count singly.

        Raises:
            SchemaError: Files that were not imported, of which that is not known.
        """
        return len(self._opened)

    def __bool__(self) -> bool:
        return True  # also where `len` is 0, or not known

    def __iter__(self) -> Iterator[Episode]:
        """Return all episodes, see `episodes`."""
        return self.episodes()

    @overload
    def __getitem__(self, index: int | str) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> Episodes: ...
    def __getitem__(self, index: int | str | slice) -> Episode | Episodes:
        """Return one episode by its number, which may be negative, or its id, or a view of some.

        The last row groups stay in memory.

        Raises:
            IndexError: There are not so many.
            KeyError: There is none with this id.
            SchemaError: Files that were not imported.
            CorruptFileError, EpisodeError, UnsafeDataError: It cannot be read.
        """
        from offline_core.data.datasets.random_access import Episodes

        access = self._opened
        numbers = access.number(index) if isinstance(index, str) else index
        return Episodes(access, range(len(access)), self.location.uri)[numbers]

    @property
    def _opened(self) -> RandomAccess:
        from offline_core.data.datasets.random_access import RandomAccess

        if not self._access:
            self._access.append(RandomAccess(self))
        return self._access[0]

    def sample(
        self, size: int, *, seed: int | np.random.Generator | None = None, columns: Sequence[str] | None = None
    ) -> dict[str, Nested]:
        """Return a batch of steps as numpy arrays (size, …), each drawn from all steps alike; a step may come twice.

        Row groups that were read for it stay in memory, up to 64 of about 4 MiB, so a small dataset is read once.

        Arguments:
            seed: equal seeds draw equal steps; a Generator goes on where it was.
            columns: obs, actions, rewards, new_obs, terminateds and truncateds unless named; eps_id, t and further columns
                of the dataset as well.

        Raises:
            ConfigError: There is no such column.
            EmptyDatasetError: There are no steps.
            SchemaError: Files that were not imported.
        """
        import numpy as np

        from offline_core.data.datasets.random_access import SAMPLED

        names = self._opened.check_names(SAMPLED if columns is None else columns)
        return self._opened.sample(size, np.random.default_rng(seed), names)

    def to_torch(
        self, *, batch_size: int = 256, columns: Sequence[str] | None = None, seed: int = 0, device: str = "cpu"
    ) -> TorchBatches:
        """Return batches of tensors for a training loop of your own: `for batch in batches` has each step once.

        Each such epoch has another order, which follows from the seed. `batch["obs"]` is a tensor, or a dict of some.

        Arguments:
            columns: obs, actions, rewards, new_obs, terminateds and truncateds unless named; further columns of the dataset
                as well.
            device: where the tensors are: "cuda".

        Raises:
            ConfigError: There is no such column, one holds text, or the dataset does not say what its spaces are.
            SchemaError: Files that were not imported.
        """
        from offline_core.data.datasets.random_access import SAMPLED
        from offline_core.learning.torch_batches import TorchBatches

        names = self._opened.check_numbers(SAMPLED if columns is None else columns)
        return TorchBatches(self, batch_size=batch_size, names=names, seed=seed, device=device)

    def describe(self) -> DatasetDescription:
        """Return what is in it, which prints as a table: episodes, returns, lengths, and each number of a step.

        Raises:
            SchemaError: Files that were not imported.
        """
        from offline_core.keeping.description import describe

        return describe(self)

    def table(self) -> pl.DataFrame:
        """One row an episode: eps_id, t_started, length, return, terminated, truncated, success, policy_id.

        Raises:
            SchemaError: files that were not imported.
        """
        return self.index((*columns.EPISODE_SUMMARY, columns.SUCCESS, columns.POLICY_ID))

    def prune(
        self, where: str | pl.Expr | None = None, *, output: Path, config: Given[PruningConfig] = None, **parameters: Any
    ) -> Dataset:
        """Call `prune` with this dataset."""
        pruned: Dataset = function_of(STAGES["prune"])(self, where, output=output, config=config, **parameters)
        return pruned


def open_dataset(data: Data, version: int | None = None) -> Dataset:
    """Open a version of a dataset, the latest by default; a folder of RLlib's episode files is one, too.

    Raises:
        DatasetNotFoundError: there is no dataset.
        VersionNotFoundError: the dataset has no such version.
        CorruptFileError: its manifest cannot be read.
    """
    uri, known = place_of(data)
    return _opened(uri, known if version is None else version)


def plan_import(source: Path | Sequence[Path], /, *, config: Given[ImportConfig] = None, **parameters: Any) -> ImportPlan:
    """Look at other people's data before it is imported: what the columns are taken for and why, and what is to decide.

    The first rows of a few files are read, and nothing is written. If `plan.is_ready`, `plan.config` is what `import_data`
    takes as its config; `print(plan)` shows it all.

    Arguments:
        source: files or folders.
        parameters: fields of `ImportConfig`; what is given stays as it is.
    """
    from offline_core.data.importing.config import ImportConfig
    from offline_core.data.importing.planning.plan import plan_import

    return plan_import(config_of(ImportConfig, config, parameters), source=_paths(source))


def verify(path: Path | Data) -> Iterator[Verified]:
    """Compare all datasets, checkpoints and results at `path` or below with their hashes, one after the other."""
    from offline_core.data.datasets.verify import verify

    uri, version = place_of(path)
    return verify(uri, version)


def tag(data: Data, name: str, /, *, version: int | None = None, remove: bool = False) -> DatasetRef:
    """Let a name stand for a version of a dataset, the latest by default: `runs/data@name` is read as that version.

    A name that stands for another version is moved. Tagged versions stay when `vacuum` deletes old ones.

    Arguments:
        remove: remove the tag; the version stays.

    Raises:
        ConfigError: the name is none.
        VersionNotFoundError: there is no such version, or no such tag to remove.
        DatasetNotFoundError: there is no dataset.
    """
    from offline_core.data.datasets.dataset import open_committed
    from offline_core.data.datasets.tags import remove_tag, resolve, write_tag

    uri, known = place_of(data)
    opened = open_committed(uri, known if version is None else version)
    if remove:
        opened = open_committed(uri, resolve(opened.location, name))
        remove_tag(opened.location, name)
    else:
        write_tag(opened.location, name, opened.manifest.version)
    return opened.ref


def about(
    data: Data,
    /,
    *,
    author: str | None = None,
    license: str | None = None,
    description: str | None = None,
    source: str | None = None,
) -> About:
    """Say who made a dataset, under which license it is, what it is, and where it is from; or only return what is said.

    The folder of a training, or of another result, may be named as well: its description is a note in lists and the report.
    Of a dataset it is said of all versions; datasets that are made from this one begin with it, and exports to Minari and
    LeRobot have it. Cards show it. What is left out stays as it is; an empty text is no longer said.

    Raises:
        DatasetNotFoundError: there is no dataset.
        SchemaError: files that were not imported.
    """
    from offline_core.data.datasets.about import FOLDER, OF_RESULTS, read_about, say_about
    from offline_core.data.datasets.catalogue import kind_of
    from offline_core.data.datasets.dataset import open_committed
    from offline_core.data.datasets.folder_kind import BEST, LAST
    from offline_core.data.store.location import Location

    uri, _ = place_of(data)
    location, folder = Location.of(uri), OF_RESULTS
    location = location.parent if posixpath.basename(location.uri) in (BEST, LAST) else location
    is_result = {kind_of(name) for name in location.files(recursive=False)} & {"result", "metrics", "failure"}
    if datasets.is_dataset(uri) or not is_result:
        location, folder = open_committed(uri).location, FOLDER
    facts = {"author": author, "license": license, "description": description, "source": source}
    said = {name: text for name, text in facts.items() if text is not None}
    return say_about(location, said, folder) if said else read_about(location, folder)


def forget(root: Path, where: str | None = None, /, *, config: Given[ForgetConfig] = None, **parameters: Any) -> ForgetResult:
    """Say, or with `delete=True` do it, which episodes are taken out of all versions of all datasets at or below a root.

    Arguments:
        where: SQL, such as "subject = 'p-17'".
        parameters: fields of `ForgetConfig`.

    Raises:
        ConfigError: the condition cannot be understood, or no dataset has its columns.
        DatasetNotFoundError: there is no dataset.
    """
    from offline_core.keeping.retention.config import ForgetConfig
    from offline_core.keeping.retention.forget import forget

    chosen = parameters if where is None else {**parameters, "where": where}
    return forget(config_of(ForgetConfig, config, chosen), root=os.fspath(root))


def explain(
    data: Data,
    policies: Judged | Sequence[Judged],
    /,
    *,
    episode: str | None = None,
    version: int | None = None,
    noise: float | None = None,
) -> Explanation:
    """Show for one episode of a log what was done at each step, and what each policy would have done.

    Nothing is written. `print(explanation.table())` has a row a step; a notebook shows the card.

    Arguments:
        policies: as candidates of a decision: checkpoints, results, functions, `rule:…`, `column:…`, ONNX files.
        episode: its id; None: the first, or of a log of one step, such as clicks, 500 that are spread over it.
        noise: standard deviation, in units of the action, of what answers one action of a Box; see `EstimateConfig`.

    Raises:
        ConfigError: there is no such episode, or a policy does not fit the log.
        CheckpointError: a policy cannot be read.
    """
    from offline_core.judging.decisions.explain import explain

    uri, known = place_of(data)
    chosen = known if version is None else version
    return explain(uri, candidates_of(policies), episode=episode, version=chosen, noise=noise)


def read_registry(path: Path, /) -> list[History]:
    """The names in a registry, each with its `aliases` and its `moves`; of one name, `runs/registry/hvac`, only that.

    Raises:
        CorruptFileError: a move is missing or damaged.
    """
    from offline_core.policies.registry import read_registry

    return read_registry(os.fspath(path))


def function_of(stage: Stage[..., Any]) -> Callable[..., Any]:
    """A stage as users call it: what it reads by position, where it writes and its parameters by keyword.

    It returns the result, or the dataset that the stage wrote with the result as `result`; of a split, two.
    """
    written = [argument for argument in stage.arguments if argument.kind == "output"]

    def call(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        parameters, places = arguments.pop("parameters", {}), dict[str, Any]()
        for argument in stage.inputs:
            places |= _places_of(argument, arguments[argument.name])
        if "version" in places and all(argument.kind != "version" for argument in stage.arguments):
            del places["version"]
        places |= {
            argument.name: os.fspath(arguments[argument.name])
            for argument in written
            if arguments.get(argument.name) is not None
        }
        for name in stage.positional:
            if (value := arguments.get(name)) is not None:
                (places if _is_code(value) else parameters)[name] = value
        config = config_of(
            load(stage.config), arguments.get("config"), {name: _plain(value) for name, value in parameters.items()}
        )
        on_metrics = arguments.get("on_metrics")
        for name, path in stage.groups.items():
            if arguments.get(name) is not None:
                places[name] = config_of(load(path), arguments[name], {})
        with contextlib.nullcontext() if on_metrics is None else _observed(on_metrics):
            result = stage(config, **places)
        if stage.gate is not None and not stage.returns_failures:
            load(stage.gate)(result, config)
        made = tuple(_opened(ref.uri, ref.version, result) for ref in (getattr(result, name) for name in stage.writes))
        return made[0] if len(made) == 1 else made or result

    call.__name__ = call.__qualname__ = stage.attribute
    call.__module__ = "offline_core"
    call.__doc__ = stage.summary
    call.__signature__ = signature = _signature(stage, written)  # type: ignore[attr-defined]
    return call


def _signature(stage: Stage[..., Any], written: Sequence[Argument]) -> inspect.Signature:
    kinds = inspect.Parameter
    return inspect.Signature(
        [
            *(kinds(argument.name, kinds.POSITIONAL_ONLY) for argument in stage.inputs),
            *(kinds(name, kinds.POSITIONAL_OR_KEYWORD, default=None) for name in stage.positional),
            *(
                kinds(argument.name, kinds.KEYWORD_ONLY, default=None if argument.default is None else kinds.empty)
                for argument in written
            ),
            *(kinds(name, kinds.KEYWORD_ONLY, default=None) for name in (*stage.groups, "config")),
            *([kinds("on_metrics", kinds.KEYWORD_ONLY, default=None)] if stage.has_metrics else []),
            kinds("parameters", kinds.VAR_KEYWORD),
        ]
    )


def _observed(on_metrics: Callable[[dict[str, Any]], object]) -> contextlib.AbstractContextManager[None]:
    from offline_core.learning.metrics import observe_metrics

    if not callable(on_metrics):
        raise ConfigError(f"on_metrics is a {type(on_metrics).__name__}; give a function of a record, a dict of numbers.")
    return observe_metrics(on_metrics)


def _is_code(value: object) -> bool:
    """Whether it is an expression of Polars, which no config holds."""
    return type(value).__module__.partition(".")[0] == "polars"


def _places_of(argument: Argument, value: Any) -> dict[str, Any]:
    """Return the arguments of a stage for the value that a user gave for one of them."""
    name = argument.name
    match argument.kind:
        case "dataset":
            uri, version = place_of(value)
            return {name: uri, "version": version}
        case "datasets":
            return {name: [latest_of(dataset) for dataset in value]}
        case "policy":
            return {name: checkpoint_of(value)}
        case "candidate":
            return {name: candidate_of(value)}
        case "candidates":
            return {name: candidates_of(value)}
        case "training":
            return {name: _training_of(value)}
        case "decision":
            return {name: value.uri if hasattr(value, "verdict") else checkpoint_of(value)}
        case "sources":
            return {name: _paths(value)}
    return {name: os.fspath(value)}


def _training_of(training: Trained) -> str:
    """The folder of a training."""
    if isinstance(training, str | os.PathLike):
        return os.fspath(training)
    if isinstance(last := getattr(training, "last_checkpoint", None), str):
        return last.rpartition("/")[0]
    raise ConfigError(f"A {type(training).__name__} is not the result of a training; give what offline.train returned.")


def _plain(value: Any) -> Any:
    """Return a parameter as configs take it: a path as text, and a result as the path of its checkpoint."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, BaseModel) and isinstance(checkpoint := getattr(value, "checkpoint", None), str):
        return checkpoint
    if isinstance(value, Mapping):
        return {os.fspath(name) if isinstance(name, os.PathLike) else name: entry for name, entry in value.items()}
    return value


def config_of(kind: type[AnyConfig], config: Given[AnyConfig], parameters: dict[str, Any]) -> AnyConfig:
    """The config of a stage; single parameters win over a whole config or mapping."""
    if isinstance(config, kind) and not parameters:
        return config
    if isinstance(config, Config):
        if not isinstance(config, kind):
            raise ConfigError(f"config is a {type(config).__name__}; this stage takes a {kind.__name__}.")
        config = {name: getattr(config, name) for name in config.model_fields_set}
    return parse(kind, {**(config or {}), **parameters})


def place_of(data: Data) -> tuple[str, int | None]:
    """(URI, version) of a dataset; None: the latest version."""
    if isinstance(data, str | os.PathLike):
        return os.fspath(data), None
    if isinstance(data, datasets.Dataset):
        return data.location.uri, data.manifest.version
    ref = data if isinstance(data, DatasetRef) else getattr(data, "dataset", None)
    if isinstance(ref, DatasetRef):
        return ref.uri, ref.version
    raise ConfigError(f"A {type(data).__name__} names no dataset; give a path, a Dataset, or the result of a stage.")


def latest_of(data: Data) -> str:
    """The URI of data that has to be the latest version."""
    uri, version = place_of(data)
    if version not in (None, 0, *datasets.versions(uri)[-1:]):
        raise ConfigError(f"{uri} has a later version than {version}, and merge takes the latest; split or prune it first.")
    return uri


def checkpoint_of(policy: Trained) -> str:
    """The URI of a policy."""
    if isinstance(policy, str | os.PathLike):
        return os.fspath(policy)
    if isinstance(checkpoint := getattr(policy, "checkpoint", None), str):
        return checkpoint
    raise ConfigError(
        f"A {type(policy).__name__} names no checkpoint; give its path, or the result of a stage that trained a policy."
    )


def candidate_of(policy: Judged) -> str | UserCode:
    """What a stage takes for a policy that is judged."""
    if callable(policy):
        return UserCode.model_validate(policy)
    if isinstance(policy, DatasetRef | datasets.Dataset):
        uri, version = place_of(policy)
        return f"{uri}@{version}"
    return policy if isinstance(policy, UserCode) else checkpoint_of(policy)


def candidates_of(policies: Judged | Sequence[Judged]) -> list[str | UserCode]:
    """Return the candidates of several policies or datasets; the result of a sweep gives the best policy of each setting."""
    if isinstance(policies, Sequence) and not isinstance(policies, str):
        return [checkpoint for policy in policies for checkpoint in candidates_of(policy)]
    checkpoints = getattr(policies, "checkpoints", None)
    return [*checkpoints] if isinstance(checkpoints, list) else [candidate_of(policies)]


def _paths(source: Path | Sequence[Path]) -> str | list[str]:
    """The paths as texts.

    Raises:
        ConfigError: It is a table, whose column names would be taken for paths.
    """
    if hasattr(source, "columns"):
        raise ConfigError(
            f"A {type(source).__name__} is no path: write it to a file, as Parquet (to_parquet in pandas, write_parquet in "
            "Polars, pyarrow.parquet.write_table), and import that."
        )
    return os.fspath(source) if isinstance(source, str | os.PathLike) else [os.fspath(path) for path in source]


def _opened(uri: str, version: int | None, result: BaseModel | None = None) -> Dataset:
    opened = datasets.open_dataset(uri, version)
    return Dataset(opened.location, opened.manifest, opened.latest, result)
