"""Conditions in SQL: columns, values and allowed functions, and nothing that opens a file or fills the memory."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_core.errors import ConfigError
from offline_core.runtime.sql import FUNCTIONS, MAX_LENGTH, MAX_OPERATORS, TYPES, compared_texts, sql_condition, sql_expression
from tests.cases import examples

ROWS = pl.DataFrame(
    {"a": [1, 2, 3], "b": ["x", "y", None], "obs": [[0.5, 1.5]] * 3, "at": [1.0, 2.0, 3.0], "select": [1, 2, 3]}
)


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("a > 1 AND not a = 3", [False, True, False]),
        ("a in (1, 3) or b like 'y%'", [True, True, True]),
        ("a not between 2 and 3", [True, False, False]),
        ("obs[2] > 1 and obs[-2] < 1", [True, True, True]),
        ("a >= avg(a)", [False, True, True]),
        ("a % 2 = 1 and -a < - 1", [False, False, True]),
        ("b is not null", [True, True, False]),
        ("b is not distinct from 'x'", [True, False, False]),
        ("b || 'z' = 'xz'", [True, False, None]),
        ("case when a > 2 then true else b = 'x' end", [True, False, True]),
        ("cast(a as double) / 2 = .5 or a::varchar = '3'", [True, False, True]),
        ("coalesce(length(b), 0) = 0", [False, False, True]),
        ("b ~ '^[xy]$' and starts_with(b, 'x')", [True, False, None]),
        ("count(*) = 3", [True, True, True]),
        ("array_sum(obs) = 2", [True, True, True]),
        ("select > 1 and \"select\" < 3", [False, True, False]),  # a word that begins a query is a column
        ("timestamp '2026-01-01' < timestamp '2026-01-02'", [True, True, True]),
        ("b = 'it''s' or b = '\\'", [False, False, None]),
    ],
)  # fmt: skip
def test_conditions(text: str, met: list[bool | None]) -> None:
    assert ROWS.with_columns(sql_condition(text).alias("met"))["met"].to_list() == met


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a in (select n from read_csv('/etc/passwd'))", r"has the word select\. A condition cannot contain a query"),
        ("a in (from 'x.csv')", r"has the word from\."),
        ("exists (select 1)", r"calls exists, .* cannot contain a query"),
        ("read_csv('/etc/passwd') > 1", r"calls read_csv, which is not allowed\. .*Functions are abs, .*variance\.$"),
        ("\"read_csv\"('/etc/passwd') > 1", r'calls "read_csv": a quoted name is a column'),
        ("a.read_csv('x') > 1", "calls read_csv"),
        ("rpad(b, 99999999999, 'x') = 'a'", "calls rpad, which is not allowed"),
        ("averge(a) > 1", r"calls averge, which is not allowed\. Did you mean avg\?"),
        ("substring(b, 1, 2) = 'x'", r"Did you mean substr\?"),
        ("columns('.*') > 1", "calls columns"),
        (f"length(concat({', '.join(['b'] * 1000)})) > 0", "calls concat"),  # its result grows with its arguments
        ('"^.*$" > 1', "has the pattern"),
        ("a > 1 -- or not", "has a comment at character 7"),
        ("a /* b */ > 1", "has a comment at character 3"),
        ("a > 1; drop table x", "has ';' at character 6"),
        ("a = 'open", 'has "\'" at character 5'),
        ("a::blob = 1", r"names the type blob\. Types are bigint, .*varchar\.$"),
        ("a > 1 or " * MAX_OPERATORS + "true", "is too large: at most 200 operators, 30 deep"),
        ("(" * 40 + "a > 1" + ")" * 40, "is too large"),
        ("b = '" + "x" * 2000 + "'", "has a text of 2,002 characters"),
        ("a < " + "9" * 50, "has a number of 50 digits"),
        ("a in (" + "1," * MAX_LENGTH + "1)", "has 200,008 characters; at most 100,000 are allowed"),
        ("a >", "cannot be understood"),
        ("case when a > 1", "has a case without then: write case when … then … else … end"),
        ("case when a > 1 then a else 2", "has a case without end"),
        ("abs(a > 1", "has a bracket that is not closed"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        sql_condition(text)
    assert str(caught.value).startswith("The condition ") and len(str(caught.value)) < 1200


@pytest.mark.parametrize(
    ("values", "met"), [(range(2, 9000), [False, True, True]), ([*range(0, -500, -1), 2], [False, True, False])]
)
def test_many_values_are_one_operator(values: Iterable[int], met: list[bool]) -> None:
    assert ROWS.select(sql_condition(f"a in ({', '.join(map(str, values))})")).to_series().to_list() == met


def is_known(call: str) -> bool:
    try:
        return bool(sql_condition(call) is not None)
    except ConfigError:
        return False


def test_allowed_functions_and_types_are_known_to_polars() -> None:
    for name in FUNCTIONS:
        calls = [f"{name}({', '.join(['a', '1', 'b'][:count])})" for count in range(4)] + [
            f"{name}('year', a)",
            f"{name}(b, '%Y')",
            f"{name}(b, ',', '.')",
        ]
        assert any(map(is_known, calls)), name
    for name in TYPES:
        sql_condition(f"cast(a as {name}) = a::{name}")


@pytest.mark.parametrize(
    "call", ["replace(b, '', 'much')", "replace(b, 'x', 'longer')", "replace(b, b, 'x')", "replace(b, 'x', b)", "replace(b)"]
)
def test_texts_are_replaced_by_shorter_ones_alone(call: str) -> None:
    with pytest.raises(ConfigError, match="the new text no longer than the old one"):
        sql_expression(call)
    assert ROWS.select(sql_expression("replace(upper(b), 'X', '')")).to_series().to_list() == ["", "Y", None]


def test_expressions_are_of_one_row_and_of_whole_names() -> None:
    rows = pl.DataFrame({"a.b": [1.0], "a": [{"b": 5}]})
    assert sql_expression("a.b + x").meta.root_names() == ["a.b", "x"]
    assert rows.select(sql_expression("2.5 / 0.3 * a.b")).item() == 2.5 / 0.3  # and no decimals, of seven digits
    with pytest.raises(ConfigError, match=r"The expression 'avg\(a\)' calls avg, .* It is of several rows"):
        sql_expression("avg(a)")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("device = 'ab' and 'c' <> item", [("device", "ab"), ("item", "c")]),
        ("device not in ('a', 'b')", [("device", "a"), ("device", "b")]),
        ("prefix || device = 'ab'", []),
        ("device = 'mob' || 'ile'", []),
    ],
)
def test_texts_that_columns_are_compared_with(text: str, found: list[tuple[str, str]]) -> None:
    assert compared_texts(text) == found


@settings(max_examples=examples(50))
@given(st.text(max_size=30))
def test_texts_stay_texts(text: str) -> None:
    """Whatever is in quotes: it neither ends early nor means something else."""
    written = text.replace("'", "''")
    assert sql_condition(f"'{written}'").meta.eq(pl.lit(text))


@given(st.text("ab_09 '\"()[].,;:=<>*/-\\selctfromwithtablnui\n", max_size=40))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    try:
        assert isinstance(sql_condition(text), pl.Expr)
    except ConfigError as error:
        assert str(error).startswith("The condition ")
