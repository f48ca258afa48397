"""Flows that, called where no Prefect server is set, refuse what is wrong before they start one."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Annotated, Any, ParamSpec, TypeVar, get_type_hints

from prefect import Flow, Task
from prefect.utilities.callables import get_call_parameters
from pydantic import BaseModel, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from flows import embedded_server
from offline_core.data.store.allowed_roots import IS_URI, is_limited, uris_in
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.runtime.config import name_choices, shown
from offline_core.runtime.stage import STAGES
from offline_core.runtime.user_code import check_imports

LOCATIONS = {each.name for stage in STAGES.values() for each in stage.arguments if each.is_place}
"""Parameters of flows that are locations."""

P = ParamSpec("P")
R = TypeVar("R")


class LocalFlow(Flow[P, R]):
    """A flow that brings a server with it where it needs one; to deploy it is to deploy a flow of Prefect."""

    def __call__(self, *args: Any, return_state: bool = False, wait_for: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]
        from offline_core.plans.refusal import refuse  # a flow is also imported to be deployed

        run: Any = functools.partial(super().__call__, *args, return_state=return_state, wait_for=wait_for, **kwargs)
        if not embedded_server.is_needed():
            return run()
        parameters = get_call_parameters(self.fn, args, kwargs)
        if parameters.get("approval"):
            raise ConfigError(
                "approval pauses the run until a person answers in the UI, and a server that a run brings with it has none. "
                "Keep one up ('prefect server start'), and set PREFECT_API_URL to it."
            )
        if not return_state:  # else what is wrong is a state
            refuse(self.validate_parameters(parameters))
        server = embedded_server.start()
        self._import_stages()  # while it starts
        with embedded_server.used(server):
            return run()

    def validate_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """As Prefect does, and then the locations and modules that they name, however deep.

        Raises:
            LocationError: `OFFLINE_ROOTS` does not allow one.
            ConfigError: `OFFLINE_IMPORTS` does not allow one.
        """
        found = super().validate_parameters(parameters)
        check_imports(*found.values())
        if is_limited():
            for name, parameter in inspect.signature(self.fn).parameters.items():
                marks = (IS_URI,) if name in LOCATIONS else getattr(parameter.annotation, "__metadata__", ())  # of short forms
                for uri in uris_in(found.get(name), marks):
                    Location.of(uri)
        return found

    def _import_stages(self) -> None:
        for name in ("prefect.flow_engine", "matplotlib.figure"):  # most stages draw a card
            importlib.import_module(name)
        tasks = {each.name for each in inspect.unwrap(self.fn).__globals__.values() if isinstance(each, Task)}
        for stage in STAGES.values():
            if stage.title == self.name or stage.title in tasks:
                importlib.import_module(f"offline_core.{stage.function.partition(':')[0]}")


def flow(
    *, name: str, flow_run_name: str | Callable[[dict[str, Any]], str] | None = None, refuses: bool = True
) -> Callable[[Callable[P, R]], LocalFlow[P, R]]:
    """As `prefect.flow`; forms label the parameters with words.

    Arguments:
        refuses: look at the parameters before the first stage. False: they are not those of a stage or chain.
    """

    def decorate(fn: Callable[P, R]) -> LocalFlow[P, R]:
        parameters = inspect.signature(fn).parameters
        hints = get_type_hints(fn, include_extras=True)
        fn.__annotations__ = hints | {
            name: Annotated[hints[name], Field(json_schema_extra=_in_a_form(parameter)), NamedChoices()]
            for name, parameter in parameters.items()
            if name in hints
        }
        if hasattr(fn, "__signature__"):  # of a function that was made
            own = [each.replace(annotation=fn.__annotations__.get(name, each.annotation)) for name, each in parameters.items()]
            fn.__signature__ = fn.__signature__.replace(parameters=own)
        return LocalFlow(_refusing(fn) if refuses else fn, name=name, flow_run_name=flow_run_name)  # type: ignore[arg-type]

    return decorate


def _refusing(fn: Callable[P, R]) -> Callable[P, R]:
    """`fn`, which says what is wrong with its parameters before its first stage: in the first seconds of a worker's run."""

    @functools.wraps(fn)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        from offline_core.plans.refusal import refuse

        refuse(get_call_parameters(fn, args, kwargs))
        return fn(*args, **kwargs)

    return run


class NamedChoices:
    """Names the types that a parameter may have, as its models do for theirs."""

    def __get_pydantic_json_schema__(self, kind: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(kind)
        name_choices(schema)
        return schema


def _in_a_form(parameter: inspect.Parameter) -> dict[str, Any]:
    default = parameter.default
    return {"title": label(parameter.name)} | ({"default": shown(default)} if isinstance(default, BaseModel) else {})


def label(name: str) -> str:
    """What a form shows for a name: "max_epochs" is "Max epochs", and "config" is "Settings"."""
    return "Settings" if name == "config" else name.replace("_", " ").capitalize()
