"""What tells one Python object from another across processes: the source text of code, and the state of everything else."""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import inspect
import json
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import fsspec
import pyarrow as pa
from pyarrow import fs

from offline_core.code_files import module_digest
from offline_core.errors import ConfigError

_SECRETS = ("key", "secret", "token", "password", "credential", "sas", "session")
"""In the names of a filesystem's arguments: who opens a place does not decide what lies there."""

_NO_STATE = ("__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "__static_attributes__")
"""Of a class: what says nothing of what it does."""

_WRITTEN_IN_C = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)
_CACHED = type(functools.cache(lambda: None))
_TOLD_BY_TEXT = (
    types.FunctionType,
    staticmethod,
    classmethod,
    property,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
)

_LARGEST = 100_000
"""Parts of an object that are looked at."""


def object_digest(value: Any) -> str:
    """16 hex digits that are the same in another process, for the same code and state.

    Code of `__main__` or of a function's inside counts by its source text, compiled where there is none, and by what that
    refers to; code that can be imported by its module's file; all other objects by what pickle would take them apart into.

    Raises:
        ConfigError: something in it has no state that can be told.
    """
    text = json.dumps(_Telling(value).told(value), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def importable_path(value: Any) -> str | None:
    """`package.module:Name` under which another process finds the same class or function; None if it does not."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or not name.isidentifier():
        return None
    return f"{module}:{name}" if getattr(sys.modules.get(module), name, None) is value else None


class _Telling:
    """One object, as JSON that says what it is."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole
        self._numbers: dict[int, int] = {}
        self._held: list[Any] = []
        """Keeps what was looked at alive: its `id` may not become that of something else."""

    def told(self, value: Any) -> Any:
        if value is None or (isinstance(value, str | bool | int | float) and type(value).__module__ == "builtins"):
            return value if not isinstance(value, float) else repr(value)
        if isinstance(value, bytes | bytearray | memoryview | pa.Buffer):
            return ["bytes", hashlib.sha256(value).hexdigest()]
        if id(value) in self._numbers:
            return ["again", self._numbers[id(value)]]
        self._numbers[id(value)] = len(self._held)
        self._held.append(value)
        if len(self._held) > _LARGEST:
            raise self._refusal(f"it has more than {_LARGEST:,} parts")
        return self._opened(value)

    def _opened(self, value: Any) -> Any:
        match value:
            case list() | tuple() if type(value) in (list, tuple):
                return ["list", *map(self.told, value)]
            case set() | frozenset():
                return ["set", *sorted((self.told(item) for item in value), key=json.dumps)]
            case dict() if type(value) is dict:
                return ["dict", *([self.told(key), self.told(item)] for key, item in value.items())]
            case types.ModuleType():
                return ["module", value.__name__, module_digest(value.__name__)]
            case types.MethodType():
                return ["method", value.__func__.__name__, self.told(value.__self__)]
            case types.FunctionType() | type():
                return self._code(value)
            case fs.FileSystem() | fsspec.AbstractFileSystem():
                return self._filesystem(value)
        if isinstance(value, _WRITTEN_IN_C):
            owner = getattr(value, "__self__", None)
            of = None if isinstance(owner, types.ModuleType) else self.told(owner)
            return ["name", str(getattr(value, "__module__", None)), value.__qualname__, of]
        if isinstance(value, _CACHED):
            return ["cached", self.told(value.cache_parameters()), self.told(value.__wrapped__)]
        if (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor):  # pickle has an address in it
            tensor = value.detach().cpu().contiguous()
            flat = tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor
            return ["tensor", str(tensor.dtype), list(tensor.shape), self.told(flat.numpy().tobytes())]
        return self._reduced(value)

    def _code(self, value: Any) -> Any:
        name = f"{value.__module__}:{value.__qualname__}"
        if importable_path(value) is not None:
            return ["name", name, None if value.__module__ == "builtins" else module_digest(value.__module__)]
        source = _source(value)
        if isinstance(value, type):
            seen = [self._around(function) for function in _functions(value)]
            state = [[key, self.told(item)] for key, item in vars(value).items() if _is_state(key, item, source)]
            return ["class", name, source, state, [self.told(base) for base in value.__bases__], seen]
        body = self._compiled(value.__code__) if source is None else [source, _place(value.__code__)]
        return ["function", name, body, *self._around(value)]

    def _around(self, function: types.FunctionType) -> list[Any]:
        """What its text does not say: values of its defaults, and what it refers to."""
        return [self.told(function.__defaults__), self.told(function.__kwdefaults__), self._seen_by(function)]

    def _compiled(self, code: types.CodeType) -> Any:
        """Of what was typed, or made of text: there is no source to be found."""
        inside = [self._compiled(each) if isinstance(each, types.CodeType) else self.told(each) for each in code.co_consts]
        return [sys.version_info[:2], code.co_code.hex(), code.co_names, code.co_varnames, inside]

    def _seen_by(self, function: types.FunctionType) -> Any:
        """What a function refers to: variables around it, and names of its module."""
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
        around = {name: cell.cell_contents for name, cell in cells if name != "__class__" and _is_filled(cell)}
        named = {name: function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__}
        return [[name, self.told(value)] for name, value in sorted({**named, **around}.items())]

    def _filesystem(self, value: Any) -> Any:
        if isinstance(value, fsspec.AbstractFileSystem):
            return ["filesystem", _kind(value), self.told([list(value.storage_args), _open(value.storage_options)])]
        _, arguments, *_ = self._parts(value)
        parts = [_open(part) if isinstance(part, Mapping) else part for part in arguments]
        return ["filesystem", _kind(value), self.told(parts)]

    def _reduced(self, value: Any) -> Any:
        parts = [list(part) if isinstance(part, Iterator) else part for part in self._parts(value)]
        return ["object", _kind(value), self.told(parts)]

    def _parts(self, value: Any) -> Any:
        try:
            reduce = copyreg.dispatch_table.get(type(value))
            parts = reduce(value) if reduce else value.__reduce_ex__(2)
        except Exception as error:  # of any kind: __reduce_ex__ is code of the object
            raise self._refusal(f"{_kind(value)} has no state that can be told") from error
        return parts if isinstance(parts, tuple) else (parts,)

    def _refusal(self, why: str) -> ConfigError:
        return ConfigError(
            f"Nothing tells {self._whole!r:.200} from another one: {why}. Give it a name that changes with it: "
            'offline_core.python_object.named(it, "name").'
        )


def _source(value: Any) -> str | None:
    try:
        return inspect.getsource(getattr(value, "__code__", value))  # of a function itself, and not of what it wraps
    except (OSError, TypeError):
        return None


def _is_state(name: str, value: Any, source: str | None) -> bool:
    """Of a class; its text has its functions, but of what it computes only how."""
    if name in _NO_STATE or name == "_abc_impl":
        return False
    return source is None or not (name.startswith("__") or isinstance(value, _TOLD_BY_TEXT))


def _functions(kind: type) -> Iterator[types.FunctionType]:
    for value in vars(kind).values():
        for each in (value, getattr(value, "__func__", None), getattr(value, "fget", None)):
            if isinstance(each, types.FunctionType):
                yield each


def _names(code: types.CodeType) -> set[str]:
    """The global names that it looks up, and those of the functions inside it."""
    found = {each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return found.union(*(_names(inner) for inner in code.co_consts if isinstance(inner, types.CodeType)))


def _place(code: types.CodeType) -> list[int]:
    """Lines and columns in its source text: two lambdas in one line have the same text."""
    first = code.co_firstlineno
    return [number for line, _, column, _ in code.co_positions() if line for number in (line - first, column or 0)]


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _open(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are no secrets."""
    return {name: value for name, value in arguments.items() if not any(secret in name for secret in _SECRETS)}


def _kind(value: Any) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"
