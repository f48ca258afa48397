"""Flows that, called where no Prefect server is set, refuse what is wrong before they start one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ParamSpec, TypeVar, get_type_hints

from prefect import Flow
from prefect.exceptions import ParameterTypeError
from prefect.utilities.callables import get_call_parameters
from pydantic import BaseModel, BeforeValidator, Field, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema

from flows.prefect_server import needs_temporary_server, temporary_server
from offline_core.errors import ConfigError
from offline_core.plans.permission import check_permitted
from offline_core.runtime.config import as_group, name_choices, shown
from offline_core.runtime.parameter_errors import problems
from offline_core.runtime.parameter_names import choices_of, is_model
from tasks.run_names import RunName, name_of

P = ParamSpec("P")
R = TypeVar("R")


class LocalFlow(Flow[P, R]):
    """A flow that is called without a server refuses what is wrong, and then runs on Prefect's temporary one."""

    def __call__(self, *args: Any, return_state: bool = False, wait_for: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]
        run: Any = functools.partial(super().__call__, *args, return_state=return_state, wait_for=wait_for, **kwargs)
        if not needs_temporary_server():
            return run()
        parameters = get_call_parameters(self.fn, args, kwargs)
        if parameters.get("approval"):
            raise ConfigError(
                "approval pauses the run until a person answers in the UI, and a temporary server has none. Keep one up "
                "('prefect server start'), and set PREFECT_API_URL to it."
            )
        if not return_state:  # else what is wrong is a state
            from offline_core.plans.refusal import refuse  # a flow is also imported to be deployed

            refuse(self.validate_parameters(parameters))
        with temporary_server():
            return run()

    def validate_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Validate as Prefect does, and then the locations and modules that the parameters name, however deep.

        Raises:
            ParameterTypeError: a parameter is unknown or out of bounds.
            LocationError: `OFFLINE_ROOTS` does not allow one.
            ConfigError: `OFFLINE_IMPORTS` does not allow one.
        """
        try:
            values = super().validate_parameters(parameters)
        except ParameterTypeError as error:
            if not isinstance(refused := error.__context__, ValidationError):
                raise
            told = problems(refused, self._groups)
            raise ParameterTypeError(f"Flow run received invalid parameters: {told}") from None
        annotations = {name: parameter.annotation for name, parameter in inspect.signature(self.fn).parameters.items()}
        of_short_forms = {name: getattr(kind, "__metadata__", ()) for name, kind in annotations.items()}
        check_permitted(values, of_short_forms)
        return values

    @property
    def _groups(self) -> dict[str, type[BaseModel]]:
        """The parameters that are groups, with their models."""
        kinds = {name: choices_of(parameter.annotation) for name, parameter in inspect.signature(self.fn).parameters.items()}
        return {name: kind for name, choices in kinds.items() for kind in choices if is_model(kind)}


def flow(
    *, name: str, run_name: str | Callable[[Mapping[str, Any]], str], is_short: bool = False
) -> Callable[[Callable[P, R]], LocalFlow[P, R]]:
    """As `prefect.flow`, with forms that take groups of parameters as fields or as YAML.

    Several groups, and those of a short form, are closed until a user opens them. Groups of which the docstring says nothing
    are described by their models; it ends in its arguments.

    Arguments:
        run_name: name of the runs that no user named: a template, see `name_of`, or a function of the parameters.
        is_short: the flow is the short form of another one.
    """

    def decorate(fn: Callable[P, R]) -> LocalFlow[P, R]:
        parameters = inspect.signature(fn).parameters
        hints = get_type_hints(fn, include_extras=True)
        is_closed = is_short or sum(isinstance(parameter.default, BaseModel) for parameter in parameters.values()) > 1
        fn.__annotations__ = hints | {
            name: _in_a_form(hints[name], parameter.default, is_closed)
            for name, parameter in parameters.items()
            if name in hints
        }
        if hasattr(fn, "__signature__"):  # of a function that was made
            own = [
                parameter.replace(annotation=fn.__annotations__.get(name, parameter.annotation))
                for name, parameter in parameters.items()
            ]
            fn.__signature__ = fn.__signature__.replace(parameters=own)
        fn.__doc__ = "\n".join([inspect.cleandoc(fn.__doc__ or ""), *_undescribed(fn, hints)])
        fill = functools.partial(name_of, run_name) if isinstance(run_name, str) else run_name
        return LocalFlow(fn, name=name, flow_run_name=RunName(fill))

    return decorate


def _undescribed(fn: Callable[..., Any], hints: Mapping[str, Any]) -> Iterator[str]:
    """A line for each group of parameters that the docstring says nothing of: what its model says of itself."""
    for name, parameter in inspect.signature(fn).parameters.items():
        [kind, *others] = choices_of(hints[name])
        if is_model(kind) and not others and f"\n    {name}: " not in inspect.cleandoc(fn.__doc__ or ""):
            sentence = inspect.cleandoc(kind.__doc__ or "").partition("\n")[0]
            # Other words than the model's own, which pydantic would leave out.
            yield f"    {name}: {'Optional' if parameter.default is None else 'Settings'}: {sentence[:1].lower()}{sentence[1:]}"


def _in_a_form(kind: Any, default: Any, is_closed: bool) -> Any:
    if not isinstance(default, BaseModel):
        return Annotated[kind, NamedChoices()]
    values = shown(default)
    begins = {"default": None if is_closed else values}
    group = Annotated[kind, GroupInForm(values, is_closed), Field(json_schema_extra=begins)]
    return Annotated[group, BeforeValidator(lambda value: default if value is None else value)] if is_closed else group


class NamedChoices:
    """Names the types that a parameter may have, as its models do for theirs."""

    def __get_pydantic_json_schema__(self, kind: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(kind)
        name_choices(schema)
        return schema


@dataclass(frozen=True)
class GroupInForm:
    """Lets a form take a group of parameters as fields or as YAML."""

    values: dict[str, Any]
    """What the fields begin with."""
    is_closed: bool
    """Whether the form shows one line until a user opens it, which stands for these values."""

    def __get_pydantic_json_schema__(self, kind: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(kind)
        as_group(schema, is_closed=self.is_closed, default=self.values)
        return schema
