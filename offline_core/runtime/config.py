"""What all parameter models share."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from offline_core.errors import ConfigError
from offline_core.runtime.parameter_errors import wrong_parameters
from offline_core.secrets import has_masked, masked

KINDS = {
    "string": "Text",
    "integer": "Whole number",
    "number": "Number",
    "boolean": "Yes or no",
    "array": "List",
    "object": "Names and values",
    "null": "None",
}
"""What a form calls a type that a value may have; "None" is that of the descriptions."""


def name_choices(schema: dict[str, Any]) -> None:
    """Title the types that a value may have, however deep, for a form's tabs; Prefect's would show "str", "int" and "Field"."""
    for choice in schema.get("anyOf", ()):
        if "$ref" not in choice:
            kind = "Choice" if "enum" in choice else KINDS.get(choice.get("type"), "As JSON")
            choice.setdefault("title", str(choice.get("const") or kind))
    for part in schema.values():
        for subschema in part if isinstance(part, list) else [part]:
            if isinstance(subschema, dict):
                name_choices(subschema)


_YAML = {"type": "string", "title": "YAML"}


def as_group(schema: dict[str, Any], *, is_closed: bool, default: Any = None) -> None:
    """Let a form take a group as fields or as the YAML that a plan prints; a closed one is one line until it is opened.

    Arguments:
        default: what the fields begin with; None: with the defaults of the group's class.
    """
    fields = {"$ref": schema.pop("$ref"), "title": "Own values"} | ({} if default is None else {"default": default})
    schema["anyOf"] = [{"type": "null", "title": "Defaults"}, fields, _YAML] if is_closed else [fields, _YAML]


def closed(schema: dict[str, Any]) -> None:
    """Let a form show a group as one line until it is opened; null stands for the group's defaults."""
    as_group(schema, is_closed=True)
    schema["default"] = None


def closed_by_name(schema: dict[str, Any]) -> None:
    """As `closed`, without a description: for groups of which only one is used."""
    closed(schema)
    del schema["description"]


def is_closed(field: FieldInfo) -> bool:
    """Whether null stands for the defaults of a field's group."""
    return field.json_schema_extra in (closed, closed_by_name)


def shown(config: BaseModel) -> dict[str, Any]:
    """What a form begins with: all values as JSON, without closed groups at their defaults."""
    values: dict[str, Any] = config.model_dump(mode="json")
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if is_closed(field) and value == field.default:
            values.pop(name, None)
        elif isinstance(value, BaseModel) and name in values:
            values[name] = shown(value)
    return values


def without_defaults(config: BaseModel, **options: Any) -> dict[str, Any]:
    """What was asked for, as JSON: the values that differ from the default of their field, however deep.

    Identities are made of it, so that a new field changes none. A value that was given and equals the default counts as not
    given. Two configs of one class have the same values here exactly if they are equal. For that, a group stands as {} where
    it has its class's defaults and its field another one, such as None; items of lists and dicts stay, each without its own
    defaults; arguments of user code stay whole.

    Arguments:
        options: `include` or `exclude` of pydantic's `model_dump`. A group of which only excluded values differ is left out.
    """
    values = config.model_dump(mode="json", exclude_defaults=True, **options)
    fields = type(config).model_fields
    return {name: value for name, value in values.items() if value != {} or not _begins_empty(fields[name].default)}


def _begins_empty(default: Any) -> bool:
    return isinstance(default, BaseModel) and not without_defaults(default)


def _words(name: str) -> str:
    """A class's name as the tab of a form shows it: "UserCode" is "User code"."""
    first, *others = re.findall(r"[A-Z][A-Z0-9]*(?![a-z])|[A-Z][^A-Z]*", name) or [name]
    return " ".join([first, *(word if word.isupper() else word.lower() for word in others)])


def values_of_text(text: str) -> Any:
    """The names and values that a text says in YAML; the text itself if it says none."""
    from offline_core.runtime.yaml_values import load_yaml  # few configs are texts, and yaml has its weight

    try:
        values = load_yaml(text)
    except ValueError as error:
        raise ValueError(f"is no YAML that can be read: {error}") from None
    return values if isinstance(values, dict) else text


class Config(BaseModel):
    """Parameters of one stage: frozen, checked on construction, unknown names refused."""

    # Arguments of an environment may be infinite: as JSON's null one could not be told from the other.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        ser_json_inf_nan="constants",
        field_title_generator=lambda name, _: name,  # the label in a form is the key in YAML and the keyword in Python
        model_title_generator=lambda model: _words(model.__name__.removesuffix("Config").removesuffix("Spec")),
        json_schema_extra=name_choices,
    )

    @model_validator(mode="wrap")
    @classmethod
    def _of_yaml(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Accept the text of YAML, as a plan prints it: forms have a field for it."""
        return handler(values_of_text(values) if isinstance(values, str) else values)

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_closed_groups(cls, values: Any) -> Any:
        if not isinstance(values, dict) or None not in values.values():
            return values
        groups = {name for name, field in cls.model_fields.items() if is_closed(field)}
        return {name: value for name, value in values.items() if value is not None or name not in groups}

    @property
    def user_code(self) -> dict[str, Any]:
        """What these parameters themselves name of the user's own: import path, or id of an environment → arguments."""
        return {}

    @property
    def unused(self) -> set[str]:
        """Groups that nothing reads, by their paths: those of algorithms that are not chosen."""
        return {f"{name}.{path}" for name, value in self if isinstance(value, Config) for path in value.unused}


_GIVEN: dict[str, dict[str, Any]] = {}
"""Arguments of environments with secrets in them that this process was given, by what records have of them."""


class EnvironmentSpec(Config):
    """A gymnasium environment by name."""

    id: str = Field("CartPole-v1", description="A gymnasium id, or module:id to import first.")
    kwargs: Annotated[dict[str, Any], PlainSerializer(to_jsonable_python, when_used="json")] = Field(
        {},
        description='Keyword arguments for gymnasium.make, as JSON: {"max_episode_steps": 200}.',
    )

    action_mask: bool = Field(
        False,
        description="The infos say by action_mask which actions are allowed, as those of Taxi-v3: make that part of the "
        "observations. Those with a key action_mask need no such switch.",
    )

    @model_validator(mode="before")
    @classmethod
    def _by_id(cls, value: Any) -> Any:
        return {"id": value.strip()} if isinstance(value, str) else value

    @field_validator("kwargs")
    @classmethod
    def _json(cls, kwargs: dict[str, Any]) -> dict[str, Any]:
        """They are kept with what is recorded, and environments are made again of them."""
        try:
            to_jsonable_python(kwargs)
        except (PydanticSerializationError, ValueError) as error:
            raise ValueError(
                f"{error}: numbers, text, lists and dicts can be kept with the data; make the rest there"
            ) from error
        return kwargs

    @model_validator(mode="after")
    def _with_secrets(self) -> EnvironmentSpec:
        """One that a file names gets the secrets that this process was given for it: files have none."""
        if (told := masked(self.kwargs, arguments=True)) != self.kwargs:
            _GIVEN[f"{self.id} {told}"] = self.kwargs
        elif has_masked(self.kwargs):
            object.__setattr__(self, "kwargs", _GIVEN.get(f"{self.id} {self.kwargs}", self.kwargs))
        return self

    @property
    def user_code(self) -> dict[str, Any]:
        return {self.id: self.kwargs}


AnyConfig = TypeVar("AnyConfig", bound=BaseModel)


def parse(model: type[AnyConfig], values: dict[str, Any]) -> AnyConfig:
    """`model(**values)` whose error lists, in the user's words, every parameter that is wrong.

    Raises:
        ConfigError: one or more parameters are unknown or out of bounds.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        message = wrong_parameters(model, error, values)
    raise ConfigError(message)  # out of the block above: pydantic's error repeats all values
