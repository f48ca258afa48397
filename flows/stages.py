"""The flows of single stages, made from the list of stages: `from flows.stages import prune` is a flow to call, serve
or deploy.

A flow has the parameters of its stage in their order, and then its config. It calls the task, and announces the dataset that
it made to automations.
"""

import importlib
import inspect
from typing import Any

from flows.events import announce
from flows.local_flow import LocalFlow, flow
from offline_core.runtime.ray_session import ray_scope
from offline_core.runtime.stage import STAGES, Argument, Stage, load
from tasks import stages as tasks
from tasks.chain import seed_of
from tasks.crash import crashing
from tasks.run_names import template_of

_KINDS: dict[str, Any] = {"datasets": list[str], "candidates": list[str], "sources": str | list[str], "version": int | None}
"""Types of arguments in a form; others are texts."""
_OF_THE_COMMAND_LINE = ("environment", "switch")
"""Kinds of arguments that are fields of the config in a form."""


def __getattr__(name: str) -> LocalFlow[..., Any]:
    """The flow of a stage; its models are imported now."""
    stages = {stage.attribute: stage for stage in STAGES.values()}
    if name not in stages:
        raise AttributeError(f"There is no stage {name}; there are {', '.join(stages)}.")
    made: LocalFlow[..., Any] = globals().get(name) or globals().setdefault(name, _flow_of(stages[name]))
    return made


def flow_of(name: str) -> LocalFlow[..., Any]:
    """The flow of a stage or of a chain, by the name of its function."""
    if any(name == stage.attribute for stage in STAGES.values()):
        return __getattr__(name)
    chain: LocalFlow[..., Any] = getattr(importlib.import_module(f"flows.{name}"), name)
    return chain


def _flow_of(stage: Stage[..., Any]) -> LocalFlow[..., Any]:
    def run(*values: Any, **named: Any) -> Any:
        bound = signature.bind(*values, **named)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        config = arguments.pop("config")
        if getattr(config, "seed", 0) is None:
            config = config.model_copy(update={"seed": seed_of(None)})
        with crashing(), ray_scope():  # importing, reading and playing may each start Ray, and here they start one
            result = getattr(tasks, stage.attribute)(config, **arguments)
        if stage.event is not None and result.dataset.version and getattr(result, "verdict", "") != "fail":
            announce(result.dataset, stage.event)  # not what failed and was let by, nor files that have no version
        return result

    config = load(stage.config)
    parameters = [_parameter(argument) for argument in stage.arguments if argument.kind not in _OF_THE_COMMAND_LINE]
    parameters.append(_keyword("config", config, config()))
    parameters += [_keyword(name, load(path) | None, None) for name, path in stage.groups.items()]
    run.__name__ = run.__qualname__ = stage.attribute
    run.__signature__ = signature = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    lines = (f"    {argument.name}: {argument.help}" for argument in stage.arguments if argument.name in signature.parameters)
    run.__doc__ = "\n".join([stage.summary, "", "Args:", *lines])
    return flow(name=stage.title, run_name=template_of(stage))(run)


def _parameter(argument: Argument) -> inspect.Parameter:
    kind, default = _KINDS.get(argument.kind, str), argument.default
    if argument.kind == "sources":
        [default] = default
    return _keyword(argument.name, kind | None if default is None else kind, default)


def _keyword(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)
