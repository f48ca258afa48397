"""What is written from the stages and checked in: `python -m tests.written` writes it, and a test holds that it is fresh."""

from __future__ import annotations

import functools
import inspect
import json
import typing
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator

from flows.local_flow import LocalFlow
from flows.short_forms import CHAINS, short_forms
from flows.stages import flow_of
from offline_core.runtime.config import EnvironmentSpec, is_closed
from offline_core.runtime.result import Result
from offline_core.runtime.stage import INDEX, STAGES, Stage, load
from tests import defaults, reference

ROOT = Path(__file__).parents[1]
CORE = ROOT / "offline_core"


@functools.cache
def stages() -> dict[str, Stage[..., Any]]:
    """All stages of the core by name, in the order of the pipeline; imports their modules."""
    found: dict[str | None, list[Stage[..., Any]]] = {}
    for path in sorted(CORE.rglob("*.py")):
        if "\n@stage(" in path.read_text():
            module = ".".join(path.relative_to(CORE).with_suffix("").parts)
            for each in vars(__import__(f"offline_core.{module}", fromlist=["*"])).values():
                if isinstance(each, Stage) and each.function.startswith(f"{module}:"):
                    found.setdefault(each.after, []).append(each)
    ordered: dict[str, Stage[..., Any]] = {}

    def follow(name: str | None) -> None:
        for each in sorted(found.pop(name, ()), key=lambda stage: stage.name):
            ordered[each.name] = each
            follow(each.name)

    follow(None)
    assert not found, f"There is no stage {', '.join(map(str, found))} for others to follow."
    STAGES.clear()  # what is read from the list knows them all from now on
    STAGES.update(ordered)
    return ordered


def index() -> str:
    """The list of stages that is read without importing them."""
    return json.dumps([each.as_json() for each in stages().values()], indent=1, ensure_ascii=False) + "\n"


def tasks() -> str:
    """The types of the tasks: those of the stages."""
    lines = ['"""Written by `python -m tests.written`."""', ""]
    for each in stages().values():
        module, _, name = each.function.partition(":")
        lines.append(f"from offline_core.{module} import {name} as {each.attribute}")
    return "\n".join([*lines[:2], *sorted(lines[2:])]) + "\n"


def functions() -> str:
    """The functions of the stages with all their parameters, for editors, type checkers and the reference."""
    stub = _Stub()
    bodies = [stub.function(each) for each in stages().values()]
    return "\n".join(['"""Written by `python -m tests.written`."""', "", *stub.imports(), "", *bodies])


class _Stub:
    """Collects what types need to be imported."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {
            "collections.abc": {"Mapping", "Sequence"},
            "offline_core.door": {"Data", "Dataset", "Given", "Judged", "Path", "Trained"},
            "typing": {"Any"},
        }

    def imports(self) -> list[str]:
        lines = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(self._names.items())]
        return [*lines, "import polars as pl"]

    def function(self, stage: Stage[..., Any]) -> str:
        """A function as `door.function_of` makes it, with each field of the config as a keyword."""
        config = load(stage.config)
        places = [f"{each.name}: {GIVEN[each.kind]}" for each in stage.inputs]
        positional = [f"{name}: {self._field(config, name)} | None = ..." for name in stage.positional]
        if stage.name == "prune":
            positional = ["where: str | pl.Expr | None = ..."]
        keywords = [
            f"{each.name}: Path{' | None = ...' if each.default is None else ''}"
            for each in stage.arguments
            if each.kind == "output"
        ]
        keywords += [f"{name}: Given[{self._class(load(path))}] = ..." for name, path in stage.groups.items()]
        keywords.append(f"config: Given[{self._class(config)}] = ...")
        if stage.has_metrics:
            self._names["collections.abc"].add("Callable")
            keywords.append("on_metrics: Callable[[dict[str, Any]], object] | None = ...")
        taken = {*stage.positional, *(each.name for each in stage.inputs), *(each.name for each in stage.arguments)}
        keywords += [f"{name}: {self._field(config, name)} = ..." for name in config.model_fields if name not in taken]
        parameters = [*places, *(["/"] if places else []), *positional, "*", *keywords]
        lines = [f"def {stage.attribute}(", *(f"    {each}," for each in parameters), f") -> {self._returned(stage)}:"]
        return "\n".join([*lines, *self._described(stage, config), "    ...", "", ""])

    def _returned(self, stage: Stage[..., Any]) -> str:
        if stage.writes:
            return "Dataset" if len(stage.writes) == 1 else f"tuple[{', '.join(['Dataset'] * len(stage.writes))}]"
        hints = typing.get_type_hints(stage.work)["return"]
        made = next((each for each in _within(hints) if isinstance(each, type) and issubclass(each, Result)), None)
        assert made is not None, stage.name
        return self._class(made)

    def _described(self, stage: Stage[..., Any], config: type[BaseModel]) -> list[str]:
        about = inspect.cleandoc(stage.work.__doc__ or "")
        told, _, raises = about.partition("\nRaises:\n")
        told = told.partition("\nArguments:\n")[0].rstrip()
        arguments = [f"    {each.name}: {_small(each.help)}" for each in stage.arguments if each.is_place]
        arguments += [f"    {name}: {_small(config.model_fields[name].description or '')}" for name in stage.positional]
        arguments += [
            f"    {name}: {_small(inspect.cleandoc(load(path).__doc__ or ''))}" for name, path in stage.groups.items()
        ]
        arguments.append(
            f"    config: all parameters, or some by name; the other keywords are the fields of `{config.__name__}`."
        )
        if stage.has_metrics:
            arguments.append(
                "    on_metrics: called with each record of the metrics, a dict, at the end of each iteration; what it raises "
                "ends the training."
            )
        lines = ['"""' + told, "", "Arguments:", *arguments]
        lines += ["", "Raises:", raises.rstrip()] if raises else []
        return [f"    {line}".rstrip() for line in "\n".join(lines).split("\n")] + ['    """']

    def _field(self, config: type[BaseModel], name: str) -> str:
        kind = self._text(typing.get_type_hints(config, include_extras=True)[name])
        return kind.replace("str", "Trained") if name in POLICIES else kind

    def _class(self, kind: type) -> str:
        if kind.__module__ != "builtins":
            self._names.setdefault(kind.__module__, set()).add(kind.__qualname__)
        return kind.__qualname__

    def _text(self, hint: Any) -> str:
        """A type as it is written, and for a group of parameters also a mapping of them."""
        if hint is None or hint is type(None):
            return "None"
        if hint is Any:
            return "Any"
        origin, parts = typing.get_origin(hint), typing.get_args(hint)
        if origin is Annotated:
            takes_text = any(isinstance(each, BeforeValidator) for each in parts[1:])
            return f"{self._text(parts[0])}{' | str' if takes_text and parts[0] is int else ''}"
        if origin in (typing.Union, UnionType):
            return " | ".join(dict.fromkeys(self._text(each) for each in parts))
        if origin is Literal:
            self._names["typing"].add("Literal")
            return f"Literal[{', '.join(map(repr, parts))}]"
        if origin is not None:
            inside = ", ".join("..." if each is Ellipsis else self._text(each) for each in parts)
            return f"{self._class(origin)}[{inside}]"
        if issubclass(hint, BaseModel):
            return f"{self._class(hint)} | Mapping[str, Any]{' | str' if hint is EnvironmentSpec else ''}"
        return self._class(hint)


def _within(hint: Any) -> Iterator[Any]:
    yield hint
    for each in typing.get_args(hint):
        yield from _within(each)


def _small(text: str) -> str:
    first = " ".join(text.partition("\n\n")[0].split())
    return first if first[1:2].isupper() else first[:1].lower() + first[1:]


POLICIES = ("against", "initial_policy")
"""Parameters for which Python takes a result, too."""
GIVEN = {
    "dataset": "Data",
    "datasets": "Sequence[Data]",
    "policy": "Trained",
    "candidate": "Judged",
    "candidates": "Judged | Sequence[Judged]",
    "training": "Trained",
    "decision": "Trained",
    "sources": "Path | Sequence[Path]",
    "folder": "Path",
}
"""What users give for each kind of argument."""


HEAD = """\
# Written by `python -m tests.written` of profiles.yaml and of the list of stages: change it there.
#
# Every stage and chain in several forms, each named by its flow and tagged with its profile, in the order of the pipeline.
# From the repository's root, with a server and the pool `offline` (see README.md):
#
#   prefect --no-prompt deploy --all --prefect-file deployments/prefect.yaml
#
# Entrypoints are relative to the root. OFFLINE_RAY_CPUS and OFFLINE_RAY_OBJECT_STORE_BYTES are for a Ray of a run's own, which
# otherwise takes all cores and Ray's share of the memory; RAY_ADDRESS: host:6379 joins a cluster instead, and neither is used.
"""
LIMIT = {"limit": 1, "collision_strategy": "ENQUEUE"}
"""The others wait their turn."""
SMALL_RAY = {"OFFLINE_RAY_CPUS": "2", "OFFLINE_RAY_OBJECT_STORE_BYTES": "268435456"}


def deployments() -> str:
    """All deployments, as `prefect deploy` reads them."""
    profiles = yaml.safe_load((ROOT / "deployments" / "profiles.yaml").read_text())
    document = {
        "build": [{"offline_core.runtime.provenance.provenance": {"id": "code"}}],  # its result is `code` below
        "deployments": [
            each
            for flow in (*CHAINS, *(each.attribute for each in stages().values()))
            for profile in ("smoke", "default", "short", "nightly", "distributed")
            for each in _of_profile(flow, profile, profiles.get(profile, {}))
        ],
    }
    text = yaml.dump(document, Dumper=_Plain, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True)
    return HEAD + "\n" + text.replace("\n- name:", "\n\n- name:")


def _of_profile(flow: str, profile: str, given: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    made = flow_of(flow)
    own = [name for name in given if name == made.name or name.startswith(f"{made.name}-{profile}-")]
    if profile == "default" or (profile == "short" and flow in short_forms()):
        own = own or [made.name]
    is_alone = flow in CHAINS or next(each for each in stages().values() if each.attribute == flow).is_alone
    for name in own:
        changed = dict(given.get(name, {}))
        cron = changed.pop("cron", None)
        parameters = {key: _in_a_form(made, key, value) for key, value in changed.items()}
        place = "short_forms" if profile == "short" else flow if flow in CHAINS else "stages"
        more = " The fields that matter most." if profile == "short" else ""
        yield {
            "name": name if name != made.name or profile == "default" else f"{name}-{profile}",
            "description": (made.description or "").partition("\n")[0] + more,
            "entrypoint": f"flows/{place}.py:{flow}{'_short' if profile == 'short' else ''}",
            "version": "{{ code.git }}",
            "tags": [profile],
            "work_pool": {"name": "offline", "job_variables": {"env": SMALL_RAY if profile == "smoke" else {}}},
            **({"concurrency_limit": LIMIT} if is_alone else {}),
            **({"schedules": [{"slug": profile, "cron": cron, "timezone": "UTC", "active": False}]} if cron else {}),
            **({"parameters": parameters} if parameters else {}),
        }


def door() -> str:
    """What is behind the door: of the stages the functions and their configs, and what else the file has."""
    made = []
    for each in stages().values():
        module, _, config = each.config.partition(":")
        made += [f"from .stages import {each.attribute} as {each.attribute}", f"from .{module} import {config} as {config}"]
    lines = {line for line in (CORE / "__init__.pyi").read_text().splitlines() if not line.startswith("from .stages ")}
    return "\n".join(sorted({*lines, *made}, key=lambda line: (line.split()[1] != ".", line))) + "\n"


def _in_a_form(flow: LocalFlow[..., Any], name: str, value: Any) -> Any:
    """What a deployment gives a parameter: a group that its form has closed as YAML, lest it is opened with all its fields."""
    parameter = inspect.signature(flow.fn).parameters.get(name)  # None: of the short form
    if parameter is None or not isinstance(default := parameter.default, BaseModel):
        return value
    return _as_text(value) if flow.parameters.properties[name]["default"] is None else _in_a_group(default, value)


def _in_a_group(default: BaseModel, values: dict[str, Any]) -> dict[str, Any]:
    made = {}
    for name, value in values.items():
        inner = type(default).model_fields[name].default
        if is_closed(type(default).model_fields[name]):
            made[name] = _as_text(value)
        else:
            made[name] = _in_a_group(inner, value) if isinstance(inner, BaseModel) else value
    return made


def _as_text(value: Any) -> str:
    return yaml.dump(value, Dumper=_Plain, sort_keys=False, default_flow_style=False, width=120, allow_unicode=True)


class _Plain(yaml.SafeDumper):
    """Writes what is named more than once in full, and several lines as lines."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Plain.add_representer(str, _Plain.represent_str)


WRITTEN = {
    INDEX: index,
    ROOT / "tasks" / "stages.pyi": tasks,
    CORE / "stages.pyi": functions,
    CORE / "__init__.pyi": door,
    ROOT / "deployments" / "prefect.yaml": deployments,
    defaults.FILE: lambda: defaults.text(stages()),
}
"""What makes each file, beside the pages of the reference."""


def main() -> None:
    """Writes all files."""
    for path, made in WRITTEN.items():
        path.write_text(made())
    for path, text in reference.pages(stages()).items():
        path.write_text(text)


if __name__ == "__main__":
    main()
