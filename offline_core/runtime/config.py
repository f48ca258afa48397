"""What all parameter models share."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticSerializationError, to_jsonable_python

from offline_core.errors import ConfigError

MAX_PROBLEMS = 5


def closed(schema: dict[str, Any]) -> None:
    """Let a form show a group as one line until it is opened; null stands for the group's defaults."""
    schema["anyOf"] = [{"$ref": schema.pop("$ref")}, {"type": "null"}]
    schema["default"] = None


def _words(name: str) -> str:
    """A class's name as a form shows it: "UserCode" is "User code"."""
    first, *others = re.findall(r"[A-Z]+(?![a-z])|[A-Z][^A-Z]*", name) or [name]
    return " ".join([first, *(word if word.isupper() else word.lower() for word in others)])


class Config(BaseModel):
    """Parameters of one stage: frozen, checked on construction, unknown names refused."""

    # Arguments of an environment may be infinite: as JSON's null one could not be told from the other.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        ser_json_inf_nan="constants",
        field_title_generator=lambda name, _: name.replace("_", " ").capitalize(),
        model_title_generator=lambda model: _words(model.__name__.removesuffix("Config")),
    )

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_closed_groups(cls, values: Any) -> Any:
        if not isinstance(values, dict) or None not in values.values():
            return values
        groups = {name for name, field in cls.model_fields.items() if field.json_schema_extra is closed}
        return {name: value for name, value in values.items() if value is not None or name not in groups}

    @property
    def user_code(self) -> dict[str, Any]:
        """What these parameters themselves name of the user's own: import path → arguments."""
        return {}


class EnvironmentSpec(Config):
    """A gymnasium environment by name."""

    id: str = Field("CartPole-v1", title="Environment id", description="A gymnasium id, or module:id to import first.")
    kwargs: dict[str, Any] = Field(
        {},
        title="Environment arguments",
        description='Keyword arguments for gymnasium.make, as JSON: {"max_episode_steps": 200}.',
    )

    action_mask: bool = Field(
        False,
        title="Action mask",
        exclude_if=lambda masked: not masked,
        description="The infos say by action_mask which actions are allowed, as those of Taxi-v3: make that part of the "
        "observations. Those with a key action_mask need no such switch.",
    )

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

    @property
    def user_code(self) -> dict[str, Any]:
        return {self.id: self.kwargs} if ":" in self.id else {}


AnyConfig = TypeVar("AnyConfig", bound=BaseModel)


def problems(error: ValidationError) -> str:
    """What is wrong with a file, and where in it, without repeating what it says: that may be anything, and of any length."""
    found = error.errors(include_input=False, include_url=False, include_context=False)
    told = [f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}"[:200] for each in found[:MAX_PROBLEMS]]
    return "; ".join(told) + (f"; and {len(found) - MAX_PROBLEMS} more" if len(found) > MAX_PROBLEMS else "")


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 500 else f"{text[:500]}…"


def parse(model: type[AnyConfig], values: dict[str, Any]) -> AnyConfig:
    """`model(**values)` whose error lists, in the user's words, every parameter that is wrong.

    Raises:
        ConfigError: one or more parameters are unknown or out of bounds.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        lines = [
            f"  {'.'.join(map(str, e['loc'])) or model.__name__}: {e['msg']} (got {_shortened(e['input'])})"
            for e in error.errors()
        ]
        raise ConfigError("\n".join([f"{len(lines)} wrong parameter(s) for {model.__name__}:", *lines])) from error
