"""Passwords, keys and tokens: what replaces them in everything that is written, logged or shown.

`masked` is for values, by the names of arguments and by the parts of URLs; `masked_text` is for sentences.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

MASK = "***"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORDS = frozenset({"pwd", "sas", "sig", "signature", "credential", "credentials", "bearer", "authorization", "cookie"})
_SECRET_PARTS = ("password", "passwd", "passphrase", "secret")
_SECRET_ENDS = (
    *("token", "auth", "authstring", "connectionstring", "sharedaccesssignature"),
    *(f"{what}key" for what in ("api", "access", "account", "private", "secret", "shared", "encryption", "signing")),
    "accesskeyid",
)
_NUMBERS_TOO = ("password", "passwd", "passphrase", "pwd")
_ARGUMENTS = re.compile(r"(.*_)?(arguments|args|kwargs|options|headers|properties)", re.IGNORECASE)
"""Fields that hold arguments of other people's code; the names in other fields, such as columns', are data."""
_OF_STORAGE = re.compile(r"(storage|client|filesystem).*", re.IGNORECASE)
_SECRET_IN_STORAGE = frozenset({"key", "session"})
_IN_QUERIES = frozenset({"key", "code"})
_CLOUDS = ("x-amz-", "x-goog-", "x-ms-")

_USERINFO = re.compile(r"(?<=://)[^\s/:@?#\"']*:(?!\d+(?:[/?#,\s]|$))[^\s\"'<>]*@")
_USER_ALONE = re.compile(r"(?<=https://)[^\s/:@?#\"']+@|(?<=http://)[^\s/:@?#\"']+@")
_QUERY = re.compile(r"(?<=[?&;#])([\w.~%-]+)=([^&;#\s\"'<>,)\]}]+)")
_QUOTED = re.compile(r"([\"'])([\w.-]+)\1(\s*:\s*)(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\d[\w.+-]*)")
_ASSIGNED = re.compile(r"(?<![\w?&;#.-])([\w.-]+)=(\"[^\"]*\"|'[^']*'|[^\s&;,\"'<>)\]}]+)")
_LINE = re.compile(r"^([ \t]*(?:- )?)([\w.-]+)(:[ \t]+)(\S[^\n]*)", re.MULTILINE)
_IN_YAML = re.compile(r"([{,]\s*|\\n\s*(?:- )?)([\w.-]+)(:\s+)([^\s,}\\][^,}\\\n]*)")
"""Of a flow mapping, or of YAML whose line breaks are escaped, as a repr has them."""
_HEADER = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}")


def is_secret(name: str, *, of_storage: bool = False) -> bool:
    """Whether an argument of this name is a secret: `password`, `aws_secret_access_key`, `hfToken`, `a.b.api-key`.

    Arguments:
        of_storage: it is one of a filesystem, where a `key` or a `session` is one, too.
    """
    words = [word.lower() for word in _WORD.findall(name.rpartition(".")[2])]
    joined = "".join(words)
    return (
        (of_storage and not _SECRET_IN_STORAGE.isdisjoint(words))
        or not _SECRET_WORDS.isdisjoint(words)
        or joined.endswith(_SECRET_ENDS)
        or any(part in joined for part in _SECRET_PARTS)
    )


def masked(value: Any, *, arguments: bool = False) -> Any:
    """JSON-able values without secrets: those of arguments by their names, and those in URLs. What has none stays as it is.

    Two results of which only secrets differ are the same result, for keys are renewed; so identities are made of this.

    Arguments:
        arguments: these are arguments themselves, and need no field such as `kwargs` around them.
    """
    return _masked(value, arguments, of_storage=False)


def masked_text(text: str, arguments: Any = None) -> str:
    """A sentence, or what another program said, without secrets.

    Arguments:
        arguments: nested arguments whose secrets may stand in it without their names.
    """
    for secret in sorted(_secrets(arguments), key=len, reverse=True):
        text = text.replace(secret, MASK)
    if "=" not in text and ":" not in text and "earer " not in text:
        return text
    text = _without_url_secrets(text)
    text = _QUOTED.sub(lambda match: _pair(match, 2, f"{match[1]}{match[2]}{match[1]}{match[3]}", quote=match[1]), text)
    text = _ASSIGNED.sub(lambda match: _pair(match, 1, f"{match[1]}="), text)
    text = _LINE.sub(lambda match: _pair(match, 2, f"{match[1]}{match[2]}{match[3]}", sure=True), text)
    text = _IN_YAML.sub(lambda match: _pair(match, 2, f"{match[1]}{match[2]}{match[3]}", sure=True), text)
    return _HEADER.sub(lambda match: f"{match[1]} {MASK}", text)


def has_masked(value: Any) -> bool:
    """Whether something was masked in nested values: they are a record, and cannot be used again."""
    if isinstance(value, Mapping):
        return any(map(has_masked, value.values()))
    return any(map(has_masked, value)) if isinstance(value, list | tuple) else isinstance(value, str) and MASK in value


def _masked(value: Any, arguments: bool, *, of_storage: bool) -> Any:
    if isinstance(value, Mapping):
        return {
            name: MASK
            if arguments and _hides(str(name), inner, of_storage)
            else _masked(inner, arguments or _holds_arguments(str(name)), of_storage=of_storage or _is_of_storage(str(name)))
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(inner, arguments, of_storage=of_storage) for inner in value]
    if isinstance(value, str):
        return masked_text(value) if arguments else _without_url_secrets(value)
    return value


@functools.lru_cache(4096)  # a manifest of many files has the same names in each
def _holds_arguments(name: str) -> bool:
    return _ARGUMENTS.fullmatch(name) is not None


@functools.lru_cache(4096)
def _is_of_storage(name: str) -> bool:
    return _OF_STORAGE.fullmatch(name) is not None


def _hides(name: str, value: Any, of_storage: bool) -> bool:
    if value is None or isinstance(value, bool):
        return False
    if isinstance(value, str | list | Mapping) and not value:  # other objects may have no truth, such as expressions and arrays
        return False
    if isinstance(value, int | float):
        return any(part in name.lower() for part in _NUMBERS_TOO)
    return is_secret(name, of_storage=of_storage)


def _secrets(arguments: Any, *, of_storage: bool = False) -> Iterator[str]:
    """The secret texts among arguments that are long enough to be found in a sentence."""
    if isinstance(arguments, Mapping):
        for name, value in arguments.items():
            if _hides(str(name), value, of_storage):
                yield from (text for text in _texts(value) if len(text) > 3)
            else:
                yield from _secrets(value, of_storage=of_storage or _is_of_storage(str(name)))
    elif isinstance(arguments, list | tuple):
        for value in arguments:
            yield from _secrets(value, of_storage=of_storage)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    else:
        yield str(value)


def _without_url_secrets(text: str) -> str:
    if "://" in text:
        text = _USER_ALONE.sub(f"{MASK}@", _USERINFO.sub(f"{MASK}@", text))
    return _QUERY.sub(_parameter, text) if "=" in text else text


def _parameter(match: re.Match[str]) -> str:
    name = match[1].lower()
    hides = is_secret(name) or name in _IN_QUERIES or name.startswith(_CLOUDS)
    return f"{match[1]}={MASK}" if hides else match[0]


def _pair(match: re.Match[str], name: int, before: str, *, quote: str = "", sure: bool = False) -> str:
    """Return a name and its value, masked if the name is a secret's.

    With `sure`, only where the name cannot be a word of a sentence.
    """
    if not is_secret(match[name]) or (sure and not _is_sure(match[name])):
        return match[0]
    return f"{before}{quote}{MASK}{quote}"


def _is_sure(name: str) -> bool:
    words = "".join(_WORD.findall(name)).lower()
    return any(part in words for part in (*_SECRET_PARTS, "apikey", "accesskey")) or words.endswith(("token", "pwd"))
