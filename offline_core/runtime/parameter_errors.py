"""What is wrong with parameters and files, in our words: pydantic's are for those who write the models."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from offline_core.runtime.parameter_names import choices_of, closest, is_model, meant_parameters
from offline_core.runtime.units import count_text
from offline_core.secrets import MASK, is_secret, masked, masked_text

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MAX_PROBLEMS = 5
MOST_FIELDS = 4
"""That a group has of its own, for all of them to be named where none is like what was given."""
MOST_CHARACTERS = 500
"""Most characters of a value that a message repeats."""
HAS_TO_BE = "has to be "
_TEXT, _NUMBER, _WHOLE = "text", "a number", "a whole number"
_LIST, _TIME, _DURATION = "a list, such as [1, 2]", "a date and time, such as 2026-01-31T12:00:00", "a duration, such as PT1H"
_KINDS = {
    "string_type": _TEXT,
    "string_unicode": _TEXT,
    "string_sub_type": _TEXT,
    "string_not_ascii": "text of ASCII characters",
    "string_pattern_mismatch": "text of the pattern {pattern}",
    "string_too_short": "text of {min_length} or more characters",
    "string_too_long": "text of {max_length} characters at most",
    "bytes_type": _TEXT,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing_size": "a whole number of fewer digits",
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "a number that is neither infinite nor NaN",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "multiple_of": "a multiple of {multiple_of}",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "none_required": "null",
    "list_type": _LIST,
    "tuple_type": _LIST,
    "set_type": _LIST,
    "frozen_set_type": _LIST,
    "iterable_type": _LIST,
    "too_short": "{min_length} or more values, not {actual_length}",
    "too_long": "{max_length} values at most, not {actual_length}",
    "dict_type": "names and values, such as {{name: value}}",
    "mapping_type": "names and values, such as {{name: value}}",
    "callable_type": "a function",
    "is_instance_of": "a {class}",
    "is_subclass_of": "a kind of {class}",
    "date_type": _TIME,
    "date_parsing": _TIME,
    "datetime_type": _TIME,
    "datetime_parsing": _TIME,
    "datetime_object_invalid": _TIME,
    "datetime_from_date_parsing": _TIME,
    "timezone_aware": "a date and time with a time zone, such as 2026-01-31T12:00:00Z",
    "timezone_naive": "a date and time without a time zone",
    "time_delta_type": _DURATION,
    "time_delta_parsing": _DURATION,
}
"""What a value has to be, by pydantic's name for the error."""
_SENTENCES = {
    "missing": "is needed",
    "extra_forbidden": "there is no such parameter",
    "invalid_key": "names have to be text",
    "frozen_field": "cannot be changed",
    "frozen_instance": "cannot be changed",
    "recursion_loop": "contains itself",
    "json_invalid": "is no JSON: {error}",
}


def problems(error: ValidationError, models: Mapping[str, type[BaseModel]] | None = None) -> str:
    """Say what is wrong with a file, and where in it, without repeating what it says: that may be anything, of any length.

    Arguments:
        models: by the names of their groups, for what may be meant by a name that they do not have.
    """
    errors = error.errors(include_url=False)
    told = [
        f"{_place(problem)}: {_joined([reason(problem)], _meant(problem, models))}"[:200] for problem in errors[:MAX_PROBLEMS]
    ]
    return "; ".join(told) + (f"; and {len(errors) - MAX_PROBLEMS} more" if len(errors) > MAX_PROBLEMS else "")


def reason(error: ErrorDetails) -> str:
    """Say what is wrong with one value, without repeating it."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in ("value_error", "assertion_error"):
        return str(context["error"]) or "is not accepted"
    if kind in ("literal_error", "enum"):
        return HAS_TO_BE + str(context["expected"]).replace("'", "")
    if kind in _SENTENCES:
        return _SENTENCES[kind].format_map(context)
    if kind in _KINDS:
        return HAS_TO_BE + _KINDS[kind].format_map(context)
    if kind in ("model_type", "model_attributes_type", "dataclass_type"):
        return f"{HAS_TO_BE}a group of parameters, by their names"
    return f"is not accepted ({kind.replace('_', ' ')})"


def wrong_parameters(model: type[BaseModel], error: ValidationError, values: Mapping[str, Any]) -> str:
    """List, in the user's words, every parameter that is wrong.

    Arguments:
        values: what `model` refused.
    """
    errors = error.errors(include_url=False)
    wrong: dict[str, tuple[list[str], list[str], str]] = {}
    for problem in errors:
        name, field, group = _named(model, problem["loc"])
        got = "" if problem["type"] == "missing" or not name else f" (got {_shortened(name, problem['input'])})"
        reasons, meant, _ = wrong.setdefault(name or _words(model), ([], [], got))
        reasons.append(_reason(problem, field))
        if problem["type"] == "extra_forbidden":
            meant += _near(name, group, model, problem["input"], functools.partial(_unused, model, values, errors))
        elif problem["type"] == "literal_error" and isinstance(value := problem["input"], str):
            meant += closest(value, re.findall(r"'([^']*)'", str(problem["ctx"]["expected"])))[:1]
    lines = [f"  {name}: {_joined(reasons, meant)}{got}" for name, (reasons, meant, got) in wrong.items()]
    return "\n".join([f"{count_text(len(lines), 'wrong parameter')} of {_words(model)}:", *lines])


def _near(
    name: str, group: type[BaseModel], model: type[BaseModel], value: object, unused_ones: Callable[[], set[str]]
) -> list[str]:
    """The paths of the parameters that may be meant by one that there is not.

    Arguments:
        group: the model around it.
        value: what it was given; of a group that there is not, the parameters inside.
        unused_ones: gives the groups that nothing reads.
    """
    above = name.rpartition(".")[0]
    if group is not model and (near := meant_parameters(name, {above: group})):
        return near
    unused = unused_ones()
    near = meant_parameters(name, {"": model}, unused)
    if group is not model:  # what nothing reads is not meant in its place
        near = [path for path in near if not any(path.startswith(f"{idle}.") for idle in unused)]
    inside = value if isinstance(value, dict) else {}
    near = near or [path for inner in inside for path in meant_parameters(f"{name}.{inner}", {"": model}, unused)]
    own = [] if group is model else [field for field in group.__annotations__ if field in group.model_fields]
    return near or [f"{above}.{field}" for field in own if len(own) <= MOST_FIELDS]


def _place(error: ErrorDetails) -> str:
    return ".".join(map(str, error["loc"])) or "it"


def _meant(error: ErrorDetails, models: Mapping[str, type[BaseModel]] | None) -> list[str]:
    return meant_parameters(_place(error), models) if models and error["type"] == "extra_forbidden" else []


def _words(model: type[BaseModel]) -> str:
    """A model as people know it: "policy export" of PolicyExportConfig."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", model.__name__.removesuffix("Config")).lower()


def _joined(reasons: list[str], meant: list[str]) -> str:
    first, *others = dict.fromkeys(reasons)
    text = ", or ".join([first, *(cause.removeprefix(HAS_TO_BE) for cause in others)])
    return f"{text}; did you mean {' or '.join(dict.fromkeys(meant))}?" if meant else text


def _reason(error: ErrorDetails, field: FieldInfo | None) -> str:
    text = reason(error)
    if error["type"] != "model_type" or field is None:
        return text
    [*groups] = (kind for kind in choices_of(field.annotation) if is_model(kind))
    return f"{text}, such as {{{next(iter(groups[0].model_fields))}: …}}" if groups and groups[0].model_fields else text


def _unused(model: type[BaseModel], values: Mapping[str, Any], errors: list[ErrorDetails]) -> set[str]:
    """The groups that nothing would read, by the values that are right."""
    wrong = {problem["loc"][0] for problem in errors if problem["loc"]}
    try:
        config = model.model_validate({name: value for name, value in values.items() if name not in wrong})
    except ValidationError:
        return set()
    return set(getattr(config, "unused", ()))


def _shortened(name: str, value: Any) -> str:
    if isinstance(value, str) and "\n" in value:  # of YAML, with whatever is in it
        return f"{len(value.splitlines())} lines of text"
    text = masked_text(repr(MASK if is_secret(name) else masked(value, arguments=True)))
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


def _named(model: type[BaseModel], path: tuple[int | str, ...]) -> tuple[str, FieldInfo | None, type[BaseModel]]:
    """The names that lead to a value, without pydantic's for the choices of a type; its field, and the model around it."""
    names: list[str] = []
    field: FieldInfo | None = None
    group, kinds = model, [model]
    for part in path:
        if len(kinds) > 1:  # one of several types, which pydantic names here
            kinds = [kind for kind in kinds if getattr(kind, "__name__", "") == part]
            continue
        names.append(str(part))
        inner: Any = get_args(kinds[0])[-1:] if kinds else ()  # of a list, or of names and values
        field = None
        if kinds and is_model(kinds[0]):
            group = kinds[0]
            field = group.model_fields.get(str(part))
            inner = () if field is None else (field.annotation,)
        kinds = [kind for annotation in inner for kind in choices_of(annotation)]
    return ".".join(names), field, group
