"""Conditions and expressions in SQL, sanitised before Polars reads them.

Polars resolves table functions while it parses: `x in (select a from read_csv('/etc/passwd'))` opens the file, and
`rpad(a, 99999999999, 'x')` ends the process. So a text is first split into words, numbers, texts and operators, and
Polars gets a new text of allowed ones only: operators, functions, types, and quoted columns. A word that would begin a query
becomes the name of a column.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Sequence
from typing import NoReturn

import polars as pl

from offline_core.errors import ConfigError, first_line
from offline_core.runtime.parameter_names import closest

MAX_LENGTH = 100_000
MAX_OPERATORS = 200
"""Polars takes seconds to plan more than this."""
MAX_DEPTH = 30
MAX_TEXT_LENGTH = 1000
MAX_DIGITS = 40
SHOWN = 200


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ROW_FUNCTIONS = _words(
    # of numbers
    "abs ceil ceiling floor round sign sqrt cbrt exp ln log log2 log10 log1p pow power mod pi degrees radians "
    "sin cos tan asin acos atan atan2 greatest least coalesce ifnull nullif if "
    # of texts
    "length char_length character_length octet_length lower upper left right substr starts_with ends_with strpos "
    "ltrim rtrim regexp_like replace "
    # of lists
    "array_contains array_get array_length array_mean array_sum "
    # of times
    "date_part strptime strftime"
)
AGGREGATES = _words(
    "avg count first last max median min quantile_cont quantile_disc stddev stddev_samp sum var variance var_samp"
)
"""Functions of all rows (of an episode)."""
FUNCTIONS = ROW_FUNCTIONS | AGGREGATES
"""Functions whose result is not much larger than their arguments."""

TYPES = _words(
    "bool boolean tinyint smallint int int1 int2 int4 int8 integer bigint float float4 float8 double real "
    "text varchar string date time timestamp datetime"
)
_TIMES = frozenset({"date", "time", "timestamp", "datetime", "interval"})
"""Words before a text: `date '2026-01-31'`."""
_OPERATORS = _words("and or not in is between like ilike rlike regexp xor case when then")
_VALUES = _words("null true false")
_CALLS = _words("cast try_cast")
_BEFORE_BRACKETS = _OPERATORS | {"else"}
_QUERIES = _words("select from with table values union join exists")

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    | (?P<comment>--|/\*)
    | (?P<column>"(?:[^"]|"")+")
    | (?P<text>'(?:[^']|'')*')
    | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<comparison>is\s+(?:not\s+)?distinct\s+from\b)
    | (?P<word>[^\W\d]\w*)
    | (?P<sign>!~~?\*?|~~?\*?|\^@|<=>|<=|>=|<>|!=|==|\|\||::|//|[-+*/%(),.\[\]<>=&|])
    """,
    re.VERBOSE | re.IGNORECASE,
)
_GROUPS = _words("( ) , . [ ]")
_EQUAL = _words("= == != <>")
_COMBINING = _words("|| + - * / %")


class _RefusedError(Exception):
    """What is wrong with a text; the message goes on after it."""


def sql_condition(text: str) -> pl.Expr:
    """Parse a condition in Polars' dialect of SQL.

    Raises:
        ConfigError: it cannot be parsed, is too large, or is more than a condition on columns; the message begins with it.
    """
    return _parsed(text, "condition", FUNCTIONS)


def sql_expression(text: str) -> pl.Expr:
    """Parse an expression on the columns of one row; `sensors.tin` is the column of that whole name.

    Raises:
        ConfigError: as `sql_condition`, or it calls a function of several rows.
    """
    return _parsed(text, "expression", ROW_FUNCTIONS, dotted=True)


def _parsed(text: str, what: str, functions: frozenset[str], *, dotted: bool = False) -> pl.Expr:
    try:
        return pl.sql_expr(_rewritten(text, functions, dotted=dotted))
    except _RefusedError as error:
        raise ConfigError(f"The {what} {shown(text)} {error}") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ConfigError(f"The {what} {shown(text)} cannot be understood: {first_line(error)[:SHOWN]}.") from error


def has_aggregates(text: str) -> bool:
    """Whether a condition that can be parsed compares rows with others."""
    words = [word.lower() for _, word in _tokens(text)]
    return any(word in AGGREGATES and following == "(" for word, following in itertools.pairwise(words))


def compared_texts(text: str) -> list[tuple[str, str]]:
    """(column, text) of each text that a condition, which can be parsed, compares a column with, as a = 'b' does."""
    tokens = _joined(_tokens(text))
    pairs: list[tuple[str, str]] = []
    for number, (kind, word) in enumerate(tokens):
        if kind != "text":
            continue
        before, after = tokens[:number][::-1], tokens[number + 1 :]
        while len(before) > 2 and before[0][1] == "," and before[1][0] == "text":  # in a list: up to its first text
            before = before[2:]
        is_listed = len(before) > 2 and before[0][1] == "(" and before[1][1].lower() == "in"
        if is_listed:
            column = before[2 + (before[2][1].lower() == "not") :]
        elif before and before[0][1] in _EQUAL:
            column = before[1:]
        else:
            column = after[1:] if after and after[0][1] in _EQUAL else []
        is_part = any(tail[0][1] in _COMBINING for tail in (column[1:], after) if tail)
        if column and column[0][0] in ("word", "column") and not is_part:
            pairs.append((column[0][1].strip('"'), word[1:-1].replace("''", "'")))
    return pairs


def shown(text: str) -> str:
    """Quote the text for a message, shortened."""
    return repr(text) if len(text) <= SHOWN else f"{text[:SHOWN]!r}…"


def _rewritten(text: str, functions: frozenset[str], *, dotted: bool) -> str:
    """Rewrite the text with allowed words only; if `dotted`, names joined by points are one."""
    if len(text) > MAX_LENGTH:
        _refuse(f"has {len(text):,} characters; at most {MAX_LENGTH:,} are allowed.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        _refuse("has half a character (a surrogate), which no column and no value can hold.")
    tokens = _joined(_tokens(text)) if dotted else _tokens(text)
    written: list[str] = []
    depth = operators = 0
    for number, (kind, word) in enumerate(tokens):
        following = tokens[number + 1] if number + 1 < len(tokens) else ("", "")
        before = tokens[number - 1] if number else ("", "")
        depth += (word in ("(", "[") or word.lower() == "case") - (word in (")", "]") or word.lower() == "end")
        is_negative = word == "-" and before[1] in ("(", ",") and following[0] == "number"
        operators += kind == "comparison" or (kind == "sign" and word not in _GROUPS - {"[", "."} and not is_negative)
        operators += kind == "word" and word.lower() in _OPERATORS
        if depth > MAX_DEPTH or operators > MAX_OPERATORS:
            _refuse(f"is too large: at most {MAX_OPERATORS} operators, {MAX_DEPTH} deep. Use 'in (…)' for many values.")
        if kind == "number" and "." in word and "e" not in word.lower() and dotted:
            written.append(f"{word}e0")  # else it is a decimal, of which 2.5 / 0.3 is 8.3333333
        elif kind == "word":
            written.append(_word(word, before, following, functions))
            if written[-1] == "replace" and following[1] == "(":
                _check_replace(tokens[number + 1 :])
        elif kind == "column" and following[1] == "(":
            _refuse(f"calls {word}: a quoted name is a column.")
        elif kind == "column" and word.startswith('"^') and word.endswith('$"'):
            _refuse(f"has the pattern {word}: name each column.")
        else:
            written.append(word)
    _check_ends(tokens)
    return " ".join(written)


def _check_ends(tokens: Sequence[tuple[str, str]]) -> None:
    """Refuse a text that stops in the middle: Polars names a word of it that is not wrong."""
    words = [word.lower() for kind, word in tokens if kind in ("word", "sign")]
    for word in ("then", "end"):
        if words.count(word) < words.count("case"):
            _refuse(f"has a case without {word}: write case when … then … else … end.")
    if words.count("(") > words.count(")"):
        _refuse("has a bracket that is not closed: a ) is missing.")


def _tokens(text: str) -> list[tuple[str, str]]:
    """Split into (kind, word), without spaces."""
    tokens: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        kind = str(match.lastgroup) if match else ""
        if match is None or kind == "comment":
            what = "a comment" if kind == "comment" else f"{text[position]!r}"
            _refuse(f'has {what} at character {position + 1}, which is not allowed. Names of columns may be quoted: "a b".')
        if kind in ("text", "column") and len(match[0]) > MAX_TEXT_LENGTH:
            _refuse(f"has a text of {len(match[0]):,} characters; at most {MAX_TEXT_LENGTH:,} are allowed.")
        if kind == "number" and len(match[0]) > MAX_DIGITS:
            _refuse(f"has a number of {len(match[0]):,} digits; at most {MAX_DIGITS} are allowed.")
        if kind != "space":
            tokens.append((kind, match[0]))
        position = match.end()
    return tokens


def _joined(tokens: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the tokens, with the names `a`, `.`, `b` joined to the one name `"a.b"`."""
    joined: list[tuple[str, str]] = []
    rest = deque(tokens)
    while rest:
        token = rest.popleft()
        is_name = token[0] == "column" or (token[0] == "word" and token[1].lower() not in _BEFORE_BRACKETS | _VALUES)
        while is_name and len(rest) > 1 and rest[0][1] == "." and rest[1][0] in ("word", "column"):
            token = ("column", _quoted(token[1].strip('"') + "." + rest[1][1].strip('"')))
            rest.popleft()
            rest.popleft()
        joined.append(token)
    return joined


def _word(word: str, before: Sequence[str], following: Sequence[str], functions: frozenset[str]) -> str:
    """Return the word for Polars: an operator, a type, a function, or a quoted column."""
    name = word.lower()
    if before[1] == "." and following[1] != "(":
        return _quoted(word)
    if before[1] == "::" or before[1].lower() == "as":
        if name not in TYPES:
            _refuse(f"names the type {word}. Types are {', '.join(sorted(TYPES))}.")
        return name
    if name in _TIMES and following[0] == "text":
        return name
    if following[1] == "(" and name not in _BEFORE_BRACKETS:
        if name in functions | _CALLS and before[1] != ".":
            return name
        _refuse(f"calls {word}, which is not allowed. {_hint(name, functions)}Functions are {', '.join(sorted(functions))}.")
    if name in _QUERIES and following[0] not in ("", "sign", "comparison") and following[1].lower() not in _OPERATORS:
        _refuse(f"has the word {word}. {_hint(name, functions)}Quote it if it is a column.")
    return name if name in _BEFORE_BRACKETS | _VALUES | {"end", "as"} else _quoted(word)


def _check_replace(tokens: Sequence[tuple[str, str]]) -> None:
    """Refuse a call, from its bracket on, that can make texts longer."""
    depths = itertools.accumulate((word == "(") - (word == ")") for _, word in tokens)
    end = next((number for number, depth in enumerate(depths) if depth == 0), 0)
    arguments = tokens[max(0, end - 4) : end]
    kinds = [kind if kind == "text" else word for kind, word in arguments]
    if kinds != [",", "text", ",", "text"] or not 2 < len(arguments[1][1]) >= len(arguments[3][1]):
        _refuse("calls replace otherwise than replace(column, 'old', 'new'), the new text no longer than the old one.")


def _hint(name: str, functions: frozenset[str]) -> str:
    if name in _QUERIES:
        return "A condition cannot contain a query. "
    if name in FUNCTIONS:
        return "It is of several rows, and an expression is of one. "
    meant = closest(name, functions)
    return f"Did you mean {meant[0]}? " if meant else ""


def _quoted(word: str) -> str:
    return '"' + word + '"'


def _refuse(reason: str) -> NoReturn:
    raise _RefusedError(reason)
