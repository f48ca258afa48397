"""Python objects as parameters, in place of text or JSON.

What identifies one across processes is the source text of code, and the state of everything else.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import inspect
import json
import re
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Any, TypeAlias

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs
from pydantic import GetCoreSchemaHandler, PlainSerializer, WrapValidator
from pydantic_core import core_schema, to_jsonable_python

from offline_core.errors import ConfigError
from offline_core.runtime.code_files import is_as_loaded, module_digest
from offline_core.secrets import is_secret

_IDENTITY = re.compile(r"python:.+#[0-9a-f]{16}|python:.+ \(named\)", re.DOTALL)
_LONGEST = 120

_NO_STATE = ("__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "__static_attributes__")
"""Attributes of a class that do not affect its behaviour."""

_WRITTEN_IN_C = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)
_CACHED = type(functools.cache(lambda: None))
_IN_SOURCE = (
    types.FunctionType,
    staticmethod,
    classmethod,
    property,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
)

_MAX_PARTS = 100_000
"""Parts of an object that are visited at most."""


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


def object_digest(value: Any) -> str:
    """Return 16 hex digits, equal in another process for the same code and state.

    Code of `__main__` or inside a function counts by its source text (bytecode where there is none) and what that refers to;
    importable code by its module's file; all other objects by the parts that pickle takes them into.

    Raises:
        ConfigError: a part has no readable state.
    """
    text = json.dumps(_Description(value).of(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def importable_path(value: Any) -> str | None:
    """Return `package.module:Name` if another process can import the class or function by it, else None."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or not name.isidentifier():
        return None
    return f"{module}:{name}" if getattr(sys.modules.get(module), name, None) is value else None


class _Description:
    """One object as JSON."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole
        self._numbers: dict[int, int] = {}
        self._held: list[Any] = []
        """Keeps visited parts alive, so that no other object gets their `id`."""

    def of(self, value: Any) -> Any:
        if value is None or (isinstance(value, str | bool | int | float) and type(value).__module__ == "builtins"):
            return value if not isinstance(value, float) else repr(value)
        if isinstance(value, bytes | bytearray | memoryview | pa.Buffer):
            return ["bytes", hashlib.sha256(value).hexdigest()]
        if id(value) in self._numbers:
            return ["again", self._numbers[id(value)]]
        self._numbers[id(value)] = len(self._held)
        self._held.append(value)
        if len(self._held) > _MAX_PARTS:
            raise self._refusal(f"it has more than {_MAX_PARTS:,} parts")
        return self._composite(value)

    def _composite(self, value: Any) -> Any:
        match value:
            case list() | tuple() if type(value) in (list, tuple):
                return ["list", *map(self.of, value)]
            case set() | frozenset():
                # Sorted before they are numbered: the order of a set is another one in each process.
                return ["set", *map(self.of, sorted(value, key=lambda item: json.dumps(_Description(self._whole).of(item))))]
            case dict() if type(value) is dict:
                return ["dict", *([self.of(key), self.of(item)] for key, item in value.items())]
            case types.ModuleType():
                return ["module", value.__name__, module_digest(value.__name__)]
            case types.MethodType():
                return ["method", value.__func__.__name__, self.of(value.__self__)]
            case types.FunctionType() | type():
                return self._code(value)
            case fs.FileSystem() | fsspec.AbstractFileSystem():
                return self._filesystem(value)
        if isinstance(value, _WRITTEN_IN_C):
            owner = getattr(value, "__self__", None)
            bound = None if isinstance(owner, types.ModuleType) else self.of(owner)
            return ["name", str(getattr(value, "__module__", None)), value.__qualname__, bound]
        if isinstance(value, _CACHED):
            return ["cached", self.of(value.cache_parameters()), self.of(value.__wrapped__)]
        if (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor):  # its pickle has an address
            tensor = value.detach().cpu().contiguous()
            flat = tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor
            return ["tensor", str(tensor.dtype), list(tensor.shape), self.of(flat.numpy().tobytes())]
        return self._reduced(value)

    def _code(self, value: Any) -> Any:
        name = f"{value.__module__}:{value.__qualname__}"
        if importable_path(value) is not None:
            return ["name", name, None if value.__module__ == "builtins" else module_digest(value.__module__)]
        source = _source(value)
        if isinstance(value, type):
            seen = [self._context(function) for function in _functions(value)]
            state = [[key, self.of(item)] for key, item in vars(value).items() if _is_state(key, item, source)]
            return ["class", name, source, state, [self.of(base) for base in value.__bases__], seen]
        body = self._compiled(value.__code__) if source is None else [source, _position(value.__code__)]
        return ["function", name, body, *self._context(value)]

    def _context(self, function: types.FunctionType) -> list[Any]:
        """Describe what the source lacks: values of defaults, and of what it refers to."""
        return [self.of(function.__defaults__), self.of(function.__kwdefaults__), self._references(function)]

    def _compiled(self, code: types.CodeType) -> Any:
        """Describe code without source, as typed in a console."""
        inside = [
            self._compiled(constant) if isinstance(constant, types.CodeType) else self.of(constant)
            for constant in code.co_consts
        ]
        return [sys.version_info[:2], code.co_code.hex(), code.co_names, code.co_varnames, inside]

    def _references(self, function: types.FunctionType) -> Any:
        """Describe the closure variables and module names that a function refers to."""
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
        around = {name: cell.cell_contents for name, cell in cells if name != "__class__" and _is_filled(cell)}
        named = {name: function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__}
        return [[name, self.of(value)] for name, value in sorted({**named, **around}.items())]

    def _filesystem(self, value: Any) -> Any:
        if isinstance(value, fsspec.AbstractFileSystem):
            return ["filesystem", _kind(value), self.of([list(value.storage_args), _without_secrets(value.storage_options)])]
        _, arguments, *_ = self._parts(value)
        parts = [_without_secrets(part) if isinstance(part, Mapping) else part for part in arguments]
        return ["filesystem", _kind(value), self.of(parts)]

    def _reduced(self, value: Any) -> Any:
        parts = [list(part) if isinstance(part, Iterator) else part for part in self._parts(value)]
        return ["object", _kind(value), self.of(parts)]

    def _parts(self, value: Any) -> Any:
        try:
            reduce = copyreg.dispatch_table.get(type(value))
            parts = reduce(value) if reduce else value.__reduce_ex__(2)
        except Exception as error:  # of any kind: __reduce_ex__ is user code
            raise self._refusal(f"{_kind(value)} has no readable state") from error
        return parts if isinstance(parts, tuple) else (parts,)

    def _refusal(self, why: str) -> ConfigError:
        return ConfigError(
            f"{self._whole!r:.200} cannot be identified: {why}. Give it a name that changes with its behaviour: "
            'offline_core.runtime.python_object.named(it, "name").'
        )


def _source(value: Any) -> str | None:
    try:
        return inspect.getsource(getattr(value, "__code__", value))  # of the function itself, not of what it wraps
    except (OSError, TypeError):
        return None


def _is_state(name: str, value: Any, source: str | None) -> bool:
    """Whether an attribute of a class is state: the source has its functions, but not its computed values."""
    if name in _NO_STATE or name == "_abc_impl":
        return False
    return source is None or not (name.startswith("__") or isinstance(value, _IN_SOURCE))


def _functions(kind: type) -> Iterator[types.FunctionType]:
    for value in vars(kind).values():
        for function in (value, getattr(value, "__func__", None), getattr(value, "fget", None)):
            if isinstance(function, types.FunctionType):
                yield function


def _names(code: types.CodeType) -> set[str]:
    """Return the global names that the code and its inner functions look up."""
    names = {
        instruction.argval for instruction in dis.get_instructions(code) if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    return names.union(*(_names(inner) for inner in code.co_consts if isinstance(inner, types.CodeType)))


def _position(code: types.CodeType) -> list[int]:
    """Return lines and columns in the source: two lambdas of one line have the same text."""
    first = code.co_firstlineno
    return [number for line, _, column, _ in code.co_positions() if line for number in (line - first, column or 0)]


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _without_secrets(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the secret arguments: credentials do not change the data."""
    return {name: value for name, value in arguments.items() if not is_secret(name, of_storage=True)}


def _kind(value: Any) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"
