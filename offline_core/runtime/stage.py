"""The one form of a stage: `@stage` beside its work says what it is called and what it takes, and all else is made from that.

A stage is a function of its config, and of the places that it reads and writes by name. It begins by looking: it opens what it
is given, and refuses what cannot be. Then it yields what it will make (a `Making`, such as a version of a dataset, or a result
in a folder), and what follows is its work, which runs only if the same was not made before. What weighs much, such as Torch,
is imported where the work begins, so that a look is quick. A stage that is never reused yields nothing, and is a plain
function.

    @stage("compact", after="prune", arguments=(DATASET, output("runs/compacted"), VERSION))
    def compact(config: CompactionConfig, *, dataset: str, output: str, version: int | None = None) -> Made[CompactionResult]:
        source = open_committed(dataset, version)
        begun = yield NewVersion(output, config, [source], result=…)
        …
        return begun.commit_copy(written, [source])

The command line, forms, deployments, tasks, flows and the functions of `import offline_core` are made from STAGES, an index of
all stages that `python -m tests.written` writes, so that a list of them imports none.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import keyword
import logging
import typing
from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, overload

log = logging.getLogger(__name__)
_INNER = log.getChild("inner")
"""Tells the warnings of stages that another stage calls, whose card has its own."""
_inside: ContextVar[bool] = ContextVar("inside a stage", default=False)

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

CORE = "offline_core"
INDEX = Path(__file__).with_name("stages.json")

Kind = Literal[
    "dataset",
    "datasets",
    "version",
    "policy",
    "candidate",
    "candidates",
    "training",
    "decision",
    "sources",
    "folder",
    "output",
    "environment",
    "switch",
]
Event = Literal["dataset.recorded", "dataset.imported", "dataset.pruned", "dataset.passed"]
MANY = ("datasets", "candidates", "sources")
PLACES = ("dataset", "policy", "candidate", "training", "decision", "folder", "output")


@dataclass(frozen=True)
class Argument:
    """A parameter of a stage besides its config."""

    name: str
    help: str
    default: Any = None
    """Of the command line and of forms. None on the command line: it is needed, unless it is an option."""
    kind: Kind = "folder"
    """dataset, policy, training: such a folder. decision: the folder of one, or a policy. candidate: a
    policy, or what else can be judged on a log. datasets, candidates: one or more.
    sources: files, folders or patterns, one or more. folder: another place that is read. output: a place that is written.
    environment: sets environment.id of the config. switch: sets what has its name in the config to true."""
    is_option: bool = False
    """On the command line, and not a positional argument."""
    is_required: bool = False
    """On the command line; a form begins with the default."""

    @property
    def is_many(self) -> bool:
        """It takes one or more."""
        return self.kind in MANY

    @property
    def is_place(self) -> bool:
        """It names places, whose URIs are checked before they are stored anywhere."""
        return self.kind in (*PLACES, *MANY)


class Making(Protocol[R_co]):
    """What a stage is about to make: found where it was made before, else made by the stage's work."""

    def found(self, stage: Stage[..., Any]) -> R_co | None:
        """The result of the same, if it was made before and is as it was."""
        ...

    def make(self, stage: Stage[..., Any], work: Callable[[Any], Any]) -> R_co:
        """That result, or that of `work`, which is told where to write and as what."""
        ...


Made: TypeAlias = Generator[Making[R], Any, Any]
"""What a stage returns that yields what it will make."""


@dataclass(frozen=True)
class Stage(Generic[P, R]):
    """One stage, called with its config and places.

    Paths of code are relative to `offline_core`, as `data.curation.prune:prune`.
    """

    name: str
    """Of the stage everywhere: verb, task, flow, deployment, operation of what it makes."""
    function: str
    """Path of this object."""
    config: str
    """Path of the model of its parameters."""
    summary: str
    """What it does, in one sentence: of the task, the flow, its form and the command's help."""
    arguments: tuple[Argument, ...]
    version: int = 1
    """Of its behaviour: one more whenever the same parameters make something else."""
    after: str | None = None
    """The stage that it follows in lists."""
    positional: tuple[str, ...] = ()
    """Parameters of the config that Python takes by position, after the places that are read."""
    short: tuple[str, ...] = ()
    """Parameters of the config that matter most, as `optimizer.max_updates`: those of its short form. None: it has no other."""
    writes: tuple[str, ...] = ()
    """Fields of the result that are datasets it made."""
    hint: str = ""
    """How the command line asks for what matters most; a sentence of its help."""
    has_metrics: bool = False
    """It writes metrics while it learns: Python may give a function that is called with each record."""
    is_alone: bool = False
    """It takes the whole machine, so deployments run one at a time."""
    run_name: str | None = None
    """Of the flow and of the task, in which its parameters are filled in."""
    event: Event | None = None
    """Announces the dataset that was made, or that passed, to automations."""
    plan: str | None = None
    """Path of the function that says what it would read and write."""
    plan_help: str = "Only say what would be read and written, and the cost on this machine."
    gate: str | None = None
    """Path of the function that raises where the result does not meet the config."""
    returns_failures: bool = False
    """Python gets a result that the gate stops at, for its verdict is what was asked for."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Optional groups of parameters beside the config, with their models."""
    work: Callable[..., Any] | None = field(default=None, repr=False, compare=False)
    """The function itself, once its module is imported."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it, or return the result of the same from before; warnings of either are logged."""
        told = _INNER if _inside.get() else log
        token = _inside.set(True)
        try:
            result = self._result(*args, **kwargs)
        finally:
            _inside.reset(token)
        for warning in getattr(result, "warnings", ()):
            told.warning("%s", warning)
        return result

    def _result(self, *args: Any, **kwargs: Any) -> R:
        from offline_core.runtime.code_permission import remember_code  # here, for a list of stages needs none of it

        remember_code(args[0] if args else kwargs["config"])
        work = self.loaded(*args, **kwargs)
        if not isinstance(work, Generator):
            return typing.cast(R, work)
        try:
            return typing.cast(R, next(work).make(self, functools.partial(_resume, work)))
        finally:
            work.close()

    def known(self, *args: P.args, **kwargs: P.kwargs) -> R | None:
        """The result of the same from before, if there is one; raises all that it refuses before it works."""
        if not inspect.isgeneratorfunction(self.loaded):
            return None
        work = self.loaded(*args, **kwargs)
        try:
            return typing.cast(Making[R], next(work)).found(self)
        finally:
            work.close()

    @property
    def loaded(self) -> Callable[..., Any]:
        """Its function; imports the module."""
        return self.work or typing.cast(Callable[..., Any], load(self.function).work)

    @property
    def help(self) -> str:
        """Of the command line."""
        return f"{self.summary} {self.hint}".strip()

    @property
    def attribute(self) -> str:
        """Its name in Python, where `import` cannot be one."""
        return f"{self.name}_data" if keyword.iskeyword(self.name) else self.name

    @property
    def title(self) -> str:
        """Its name where names have dashes: of the command, the task, the flow."""
        return self.name.replace("_", "-")

    @property
    def inputs(self) -> list[Argument]:
        """The arguments that Python takes by position."""
        return [argument for argument in self.arguments if argument.is_place and argument.kind != "output"]

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return load, (self.function,)

    def as_json(self) -> dict[str, Any]:
        """Return the stage as the index stores it, without values that are the defaults."""
        told = {name: value for name, value in asdict(self).items() if name != "work" and value != _DEFAULTS.get(name)}
        arguments = [
            {name: value for name, value in argument.items() if value != _OF_ARGUMENT.get(name)}
            for argument in told["arguments"]
        ]
        return told | {"arguments": arguments}


_OF_ARGUMENT: dict[str, Any] = {attribute.name: attribute.default for attribute in fields(Argument)}
_DEFAULTS: dict[str, Any] = {
    attribute.name: {} if attribute.name == "groups" else attribute.default for attribute in fields(Stage)
}


def _resume(work: Generator[Any, Any, Any], begun: Any) -> Any:
    try:
        work.send(begun)
    except StopIteration as end:
        return end.value
    raise RuntimeError("A stage yields once: what it will make.")


class _Decorator(Protocol):
    @overload
    def __call__(self, function: Callable[P, Made[R]], /) -> Stage[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Stage[P, R]: ...


def stage(name: str, *, arguments: tuple[Argument, ...], gate: Callable[..., None] | None = None, **more: Any) -> _Decorator:
    """Make a stage of a function, whose first parameter is its config, and whose docstring begins with the summary.

    Arguments:
        gate: raises where a result does not meet the config.
        more: other fields of `Stage`.
    """

    def decorate(function: Callable[..., Any]) -> Stage[..., Any]:
        groups = {name: path_of(model) for name, model in more.pop("groups", {}).items()}
        summary = inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
        made: Stage[..., Any] = Stage(
            name=name,
            function=path_of(function),
            config=path_of(function.__globals__[next(iter(inspect.signature(function).parameters.values())).annotation]),
            summary=summary,
            arguments=arguments,
            gate=None if gate is None else path_of(gate),
            groups=groups,
            work=function,
            **more,
        )
        return made

    return typing.cast(_Decorator, decorate)


def path_of(thing: Any) -> str:
    """Where a class or function of the core is, as `load` takes it."""
    return f"{thing.__module__.removeprefix(f'{CORE}.')}:{thing.__qualname__}"


def load(path: str) -> Any:
    """What `module:name` of the core is; imports the module."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(f"{CORE}.{module}"), name)


def _read() -> dict[str, Stage[..., Any]]:
    entries = json.loads(INDEX.read_text())
    for entry in entries:
        entry["arguments"] = tuple(Argument(**argument) for argument in entry["arguments"])
        for name in ("positional", "short", "writes"):
            entry[name] = tuple(entry.get(name, ()))
    return {entry["name"]: Stage(**entry) for entry in entries}


def __getattr__(name: str) -> dict[str, Stage[..., Any]]:
    if name != "STAGES":
        raise AttributeError(name)
    globals()["STAGES"] = stages = _read()
    return stages


STAGES: dict[str, Stage[..., Any]]
"""All stages by name, in the order of the pipeline; their modules are not imported. Read when it is first used."""

VERSION = Argument("version", "Version of the dataset; the latest if none is given.", kind="version", is_option=True)
ENVIRONMENT = Argument("env", "Gymnasium id of the environment.", kind="environment", is_option=True)
DATASET = Argument("dataset", "Folder of the dataset to read.", "runs/recording", kind="dataset")


CANDIDATES = (
    "Checkpoints, ONNX files, rule:price * 0.95, function:package.module:name, a column of the log with probabilities "
    "(column:new_policy), or another dataset: the behaviour that recorded it."
)


def output(default: str, help: str = "Folder of the dataset to write.", *, is_option: bool = False) -> Argument:
    """Where a stage writes."""
    return Argument("output", help, default, kind="output", is_option=is_option)


def policy(verb: str, default: str = "runs/policy/best") -> Argument:
    """A policy that a stage plays, estimates and the like."""
    return Argument("policy", f"Checkpoint of the policy to {verb}.", default, kind="policy")


def candidate(verb: str, default: str = "runs/policy/best") -> Argument:
    """A policy that a stage judges on a log, and does not play."""
    help = (
        f"Checkpoint or ONNX file of the policy to {verb}; or rule:…, function:package.module:name, column:…, another dataset."
    )
    return Argument("policy", help, default, kind="candidate")
