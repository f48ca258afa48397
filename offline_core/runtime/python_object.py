"""Python objects as parameters, in place of text or JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, TypeAlias

import pyarrow.compute as pc
from pydantic import GetCoreSchemaHandler, PlainSerializer, WrapValidator
from pydantic_core import core_schema, to_jsonable_python

from offline_core.runtime.code_files import is_as_loaded
from offline_core.runtime.object_identity import importable_path, object_digest

_IDENTITY = re.compile(r"python:.+#[0-9a-f]{16}|python:.+ \(named\)", re.DOTALL)
_LONGEST = 120


class PythonObject:
    """An object, and the text that stands for it in identities, manifests, cards and Prefect's records.

    The text does not lead back to the object: parameters that are read from text refuse it.
    """

    __slots__ = ("identity", "value")

    def __init__(self, value: Any, identity: str) -> None:
        self.value = value
        self.identity = identity

    @classmethod
    def of(cls, value: Any) -> PythonObject:
        """Derive the identity from source text and state.

        Raises:
            ConfigError: these do not identify it.
        """
        return value if isinstance(value, PythonObject) else cls(value, f"python:{_label(value)}#{object_digest(value)}")

    @property
    def name(self) -> str:
        """The name of a class or function, or of the object's class."""
        return str(getattr(self.value, "__name__", type(self.value).__name__))

    def __str__(self) -> str:
        return self.identity

    def __repr__(self) -> str:
        return f"<{self.identity}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PythonObject) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)


def named(value: Any, name: str) -> PythonObject:
    """Make `value` a parameter identified by `name` alone: change the name when its behaviour changes.

    For objects whose source text and state do not identify them, or should not count.
    """
    return PythonObject(value, f"python:{name} (named)")


def unwrapped(value: Any) -> Any:
    """Return nested arguments with `PythonObject`s replaced by their values."""
    match value:
        case PythonObject():
            return value.value
        case Mapping():
            return {name: unwrapped(item) for name, item in value.items()}
        case list():
            return [unwrapped(item) for item in value]
        case tuple():
            return tuple(unwrapped(item) for item in value)
    return value


def _label(value: Any) -> str:
    """Return a readable label: a name, the text of an expression, or the class; other texts may hold secrets."""
    if isinstance(value, pc.Expression):
        return _shortened(str(value))
    labelled = value if callable(value) and hasattr(value, "__qualname__") else type(value)
    return f"{labelled.__module__}:{labelled.__qualname__}"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _refuse_identity(text: str) -> str:
    if _IDENTITY.fullmatch(text):
        raise ValueError(
            f"{text} stands for an object of another Python process, and text cannot bring it here: put the code into a file "
            "that can be imported and name it as package.module:Name, or call the step from the process that has it"
        )
    return text


class _Code:
    """The schema of a string with this pattern in forms and files, or a class, function or callable from Python."""

    def __init__(self, pattern: str | None = None) -> None:
        self.pattern = pattern

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_wrap_validator_function(
            _code,
            core_schema.str_schema(pattern=self.pattern),
            serialization=core_schema.plain_serializer_function_ser_schema(
                str, return_schema=core_schema.str_schema(), when_used="json"
            ),
        )


def _code(value: Any, as_text: Any) -> str | PythonObject:
    if isinstance(value, str):
        _refuse_identity(value)
    elif isinstance(value, PythonObject) or callable(value):
        path = importable_path(value)
        if path is None:
            return PythonObject.of(value)
        if not is_as_loaded(value):
            raise ValueError(f"the file of {path} was changed after this process had imported it: start a new process")
        return path
    return as_text(value)  # type: ignore[no-any-return]


def _wrapped(value: Any) -> Any:
    """Wrap all that JSON cannot hold as `PythonObject`s."""
    kind = type(value)  # not a subclass: JSON would lose its name
    if kind is str:
        return _refuse_identity(value)
    if kind is dict:
        return {name: _wrapped(item) for name, item in value.items()}
    if kind in (list, tuple):
        return kind(_wrapped(item) for item in value)
    if value is None or kind in (bool, int, float) or isinstance(value, PythonObject | PurePath):
        return value
    return PythonObject.of(value)


def _arguments(value: Any, as_dict: Any) -> dict[str, Any]:
    return _wrapped(as_dict(value))  # type: ignore[no-any-return]


def _as_json(arguments: dict[str, Any]) -> Any:
    return to_jsonable_python(arguments, fallback=str)


Code: TypeAlias = Annotated[str | PythonObject, _Code()]
"""Text, or from Python a class or function; what can be imported by others is kept as `package.module:Name`."""

ImportPath: TypeAlias = Annotated[str | PythonObject, _Code(r"^[\w.]+:\w+$")]
"""As `Code`, but text has to be `package.module:Name`."""

Arguments: TypeAlias = Annotated[dict[str, Any], WrapValidator(_arguments), PlainSerializer(_as_json, when_used="json")]
"""Keyword arguments: JSON, and from Python any object; `unwrapped` has them as the caller gave them."""
