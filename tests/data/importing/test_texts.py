"""Text where numbers, lists of them or times have to be: parsed where that is clear, else told row by row."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import yaml
from gymnasium import spaces

from offline_core.data.episodes.arrow import read_column
from offline_core.data.episodes.spaces import space_metadata
from offline_core.data.formats.sources.listing import Listing
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.resolving import preparation_of
from offline_core.data.importing.texts import may_be_decimals, number_type, read_numbers
from offline_core.data.inputs.row_steps import as_sql
from offline_core.errors import SchemaError
from offline_core.runtime.config import parse
from offline_core.runtime.sql import sql_expression
from tests.data.importing.preparing import column, prepare, reason, settled, table


def test_text_is_parsed_where_numbers_have_to_be() -> None:
    rows = pa.table(
        {"x": ["1.5", "oops", "2", " 3e0"], "y": [1, 2, 3, 4], "a": ["0", "1", "1", "2"], "r": ["1", "2", "nan", "3"]}
    )
    good, bad = prepare(rows, mapping={"obs": ["x", "y"], "actions": "a", "rewards": "r"})
    assert [(each.row, str(each.error)) for each in bad] == [
        (101, "Column 'x' has text that is no number, such as 'oops'."),
        (102, "Column 'r' has text that is no number, such as 'nan'."),
    ]
    assert good is not None
    np.testing.assert_array_equal(read_column(good, "obs"), [[1.5, 1], [3, 4]])
    assert good["actions"].to_pylist() == [0, 2]
    assert good.schema.field("actions").type == pa.int64()


def test_text_stays_text_where_nothing_says_otherwise() -> None:
    rows = table(2, obs=["1", "look"], note=["7", "8"])
    assert column(rows, "obs").tolist() == ["1", "look"]
    assert column(rows, "note").tolist() == ["7", "8"]
    assert column(table(2, obs=["1", "2"]), "obs", spaces=(spaces.Discrete(3), None)).tolist() == [1, 2]
    assert column(table(2, actions=["1", "2"]), "actions", spaces=(None, spaces.Text(3))).tolist() == ["1", "2"]


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ("2025-10-26T03:00:00", r"has the time '2025-10-26T03:00:00', which has no offset where others have one"),
        ("2025-10-26T03:00:00 CEST", r"whose zone is a name\. Write its offset"),
    ],
)
def test_a_time_without_an_offset_among_others_is_told_as_such(time: str, message: str) -> None:
    _, [bad] = prepare(table(3, t=["2025-10-26T01:00:00Z", time, "2025-10-26T05:00:00+01:00"]))
    assert bad.row == 101 and re.search(message, str(bad.error))


def test_observations_that_are_numbers_but_for_a_few_are_numbers() -> None:
    """And the few are named, as they are in rewards; where earlier rows have text, or it is declared, they are text."""
    texts = ["0.5", "true", "1", "1.5", *map(str, range(6))]
    good, [bad] = prepare(table(10, obs=texts))
    assert good is not None and good["obs"].to_pylist() == [0.5, 1, 1.5, 0, 1, 2, 3, 4, 5]
    assert bad.row == 101 and re.fullmatch(
        r"Column 'obs' has text that is no number, such as 'true'\. If its values are codes, .* columns: \{encode: \{obs: .*",
        str(bad.error),
    )
    assert column(table(10, obs=texts), "obs", texts=frozenset({"obs"})).tolist() == texts
    good, bad_rows = prepare(table(10, obs=texts), settled(table(obs=["a", "b", "c", "1"])))
    assert good is not None and good["obs"].to_pylist() == texts and bad_rows == []


def test_columns_that_are_declared_to_be_texts_are_known() -> None:
    config = parse(ImportConfig, {"source": {"arguments": {"schema_overrides": {"x": "String", "y": "Float64"}}}})
    assert preparation_of(config, [], Listing()).texts == {"x"}


def test_codes_are_texts_but_where_earlier_rows_are_numbers() -> None:
    codes = table(5, obs=["1", "2", "3", "4", "A"])
    assert column(codes, "obs").tolist() == ["1", "2", "3", "4", "A"]
    good, [bad] = prepare(codes, settled(table(obs=["0.5", "1", "2", "3"])))
    assert good is not None and good["obs"].to_pylist() == [1, 2, 3, 4] and bad.row == 104


def test_times_with_nanoseconds_are_times() -> None:
    times = ["2025-01-01 00:00:00.123456789", "2025-01-02"]
    expected = [np.datetime64(time.replace(" ", "T"), "ns").astype(int) for time in times]
    assert column(table(2, t=times), "t").tolist() == expected


def test_text_stays_text_where_the_table_itself_says_so() -> None:
    rows = table(2, obs=["[1", "look"], actions=["left", "right"])
    rows = rows.replace_schema_metadata(space_metadata(spaces.Text(5), spaces.Text(5)))
    assert column(rows, "actions").tolist() == ["left", "right"]
    assert column(rows, "obs").tolist() == ["[1", "look"]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["[0.5, 1]", " [2,3.0 ] "], np.array([[0.5, 1.0], [2.0, 3.0]])),
        (["[1, 2]", "[-3, 4]"], np.array([[1, 2], [-3, 4]])),
        (["[[1, 2], [3, 4]]", "[[5, 6], [7, 8]]"], np.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]])),
    ],
)
def test_lists_as_text(texts: list[str], expected: np.ndarray) -> None:
    """As CSV has them."""
    for name in ("obs", "new_obs", "actions"):
        np.testing.assert_array_equal(column(table(2, **{name: texts}), name), expected, strict=True)
    box = spaces.Box(-9, 9, expected.shape[1:], np.float32)
    assert column(table(2, obs=texts), "obs", spaces=(box, None)).dtype == np.float32
    assert column(table(2, obs=texts), "obs", spaces=(spaces.Text(99), None)).tolist() == texts
    assert column(table(2, note=texts), "note").tolist() == texts


@pytest.mark.parametrize(
    "write",
    [
        str,
        repr,
        lambda array: str(array.tolist()),
        lambda array: str(tuple(array.tolist())),
        lambda array: repr(array.astype(np.float32)),
        lambda array: f"np.{array!r}",
        lambda array: f"tensor({array.tolist()}, dtype=torch.float64)",
        lambda array: str(array.tolist()).replace(",", ""),
        lambda array: str(array.tolist()).replace("[", "{").replace("]", "}"),
    ],
    ids=["print", "repr", "list", "tuple", "float32", "np.repr", "tensor", "spaces", "postgres"],
)
@pytest.mark.parametrize("values", [[[0.5, -1.25, 3], [4, 5e-7, 1e20]], [[[1.0, 2.5], [-3, 4]], [[0.1, 6], [7, 8]]]])
def test_vectors_as_python_and_numpy_print_them(write: Callable[[np.ndarray], str], values: list[Any]) -> None:
    texts = [write(np.array(each)) for each in values]
    for name in ("obs", "actions"):
        np.testing.assert_allclose(column(table(2, **{name: texts}), name), values, rtol=1e-6)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["0.5 1.0", "2 3"], "no list of numbers like"),
        (["0.5,1.0", "2,3"], "no list of numbers like"),
        (["0.5;1.0", "2;3"], "no list of numbers like"),
        ([str(np.arange(2000.0))] * 2, r"NumPy printed it without its middle, '\[0"),
        (["(1, 2)", "(1, 'a')", "(3, 4)"], "no list of numbers like"),
    ],
)
def test_vectors_that_cannot_be_told_are_refused_and_no_text(texts: list[str], message: str) -> None:
    _, bad = prepare(table(len(texts), obs=texts))
    assert bad and re.search(message, str(bad[0].error)), bad


@pytest.mark.parametrize(
    ("texts", "may_be"),
    [(["1,3", "0,9", "<0.5", None], True), (["1,3", "12"], True), (["1,3", "0.5,2"], False), (["1,3,5"], False)],
)
def test_decimal_commas_may_be_lists_of_two(texts: list[str | None], may_be: bool) -> None:
    assert may_be_decimals(pa.chunked_array([texts])) is may_be


@pytest.mark.parametrize(
    ("texts", "expression", "numbers"),
    [
        (["1,5", "2,25"], "cast(replace(COLUMN, ',', '.') as double)", [1.5, 2.25]),
        (["12,345.60", "7,000.5"], "cast(replace(COLUMN, ',', '') as double)", [12345.6, 7000.5]),
        (["1,234,567", "7,654,321"], "cast(replace(COLUMN, ',', '') as double)", [1234567.0, 7654321.0]),
        (["1,500", "2,500"], "cast(replace(COLUMN, ',', '') as double)", [1500.0, 2500.0]),
        (["<0.5", ">>= 10.2"], "cast(ltrim(COLUMN, '<>≤≥= ') as double)", [0.5, 10.2]),
        (["<0,5", ">10,2"], "cast(replace(ltrim(COLUMN, '<>≤≥= '), ',', '.') as double)", [0.5, 10.2]),
        (["<1,200,000", "3,400,000"], "cast(replace(ltrim(COLUMN, '<>≤≥= '), ',', '') as double)", [1_200_000, 3_400_000]),
        (["<0.5 mg/l", "2 mg/l"], "cast(rtrim(ltrim(COLUMN, '<>≤≥= '), ' mg/l') as double)", [0.5, 2]),
        (["21.5 C", "-3 C"], "cast(rtrim(COLUMN, ' C') as double)", [21.5, -3.0]),
        (["2.107,50", "-950,25"], "cast(replace(replace(COLUMN, '.', ''), ',', '.') as double)", [2107.5, -950.25]),
        (["1.086,80 €", "0 €"], "cast(replace(replace(rtrim(COLUMN, ' €'), '.', ''), ',', '.') as double)", [1086.8, 0.0]),
        (["43,8 %", "0 %"], "cast(replace(rtrim(COLUMN, ' %'), ',', '.') as double)", [43.8, 0.0]),
        (["$1,299.00", "$ 5.50"], "cast(replace(ltrim(COLUMN, ' $'), ',', '') as double)", [1299.0, 5.5]),
        (["-$1,299.00", "$5"], "cast(replace(replace(COLUMN, '$', ''), ',', '') as double)", [-1299.0, 5.0]),
    ],
    ids=[
        "decimal",
        "thousands",
        "millions",
        "either",
        "limit",
        "limit and comma",
        "limit and thousands",
        "limit and unit",
        "unit",
        "points and comma",
        "points, comma and unit",
        "comma and unit",
        "currency",
        "sign and currency",
    ],
)
@pytest.mark.parametrize("mapping", [{}, {"rewards": "x"}, {"rewards": "CRP (mg/l)"}])
def test_numbers_in_other_forms_are_refused_with_what_mends_them(
    texts: list[str], expression: str, numbers: list[float], mapping: dict[str, str]
) -> None:
    column = mapping.get("rewards", "rewards")
    rows = table(2, rewards=None) if mapping else table(2)
    rows = pa.table({name: rows[name] for name in rows.column_names if name != column} | {column: texts})
    expression = expression.replace("COLUMN", as_sql(column))
    [_, said] = str(reason(rows, mapping=mapping)).split("columns: ", 1)
    assert yaml.safe_load(said[: said.index("}}") + 2]) == {"computed": {"NAME": expression}}
    assert pl.DataFrame({column: texts}).select(sql_expression(expression)).to_series().to_list() == numbers


@pytest.mark.parametrize(
    ("texts", "is_sure"),
    [
        (["2.107,50", "950,00", None], True),
        (["86,80 €", "0 €"], True),
        (["$1,299.00", "$5"], True),
        (["1,299 €", "2,500 €"], False),
        (["1,3", "0,9"], False),
        (["21.5 C", "70 F"], False),
        (["86,80 €", "free"], False),
        (["3 rooms", "4.5.6 rooms"], False),
        (["3 rooms", "4 rooms"], False),
        (["10a", "11a"], False),
        (["1.500 €", "2.300 €"], False),
        (["1.500,00 €", "2.300 €"], True),
        (["2.107,50", "1,234.50"], False),
        (["1,500.5", "86,80"], False),
        (["$1,500", "$20,5"], False),
        (["5 %", "0.05"], False),
        (["5 %", "7 %", "0"], True),
        (["€5", "5 €"], False),
        (["0.5", "1"], False),
    ],
)
def test_numbers_in_other_forms_that_can_be_nothing_else(texts: list[str | None], is_sure: bool) -> None:
    assert (read_numbers(pa.chunked_array([texts]), "Preis") is not None) is is_sure


def test_a_point_before_three_digits_may_mean_either() -> None:
    said = str(reason(table(2, rewards=["1.500 €", "2.300 €"])))
    assert "If its points separate thousands" in said and "If they are decimal points" in said


def test_addresses_get_no_expression_that_makes_numbers_of_them() -> None:
    assert "compute it" not in str(reason(table(2, rewards=["192.168.100.200", "192.168.100.201"])))


def test_times_in_nanoseconds_keep_all_digits() -> None:
    times = ["1700000000000000001", "1700000000000000003"]
    assert number_type(pa.chunked_array([times]), may_be_time=False) == pa.int64()
    assert number_type(pa.chunked_array([[*times, "9900000000000000000"]]), may_be_time=False) == pa.float64()
    assert column(table(2, stamp=times), "stamp")[0] == times[0]
    assert column(table(2, t=times), "t").tolist() == [int(time) for time in times]


def test_whole_numbers_beyond_64_bits_are_real_ones() -> None:
    large = [f"1{'0' * 20}", "2"]
    np.testing.assert_allclose(column(table(2, rewards=large), "rewards"), [1e20, 2])


@pytest.mark.parametrize("text", ["[1], [2]", "[1, 2, 3]", "[1, 'a']", "[1] said he", "go left", "1", None])
def test_lists_that_are_none(text: str | None) -> None:
    good, [bad] = prepare(table(5, obs=["[1, 2]", "[3, 4]", text, "[5, 6]", "[7, 8]"]))
    assert (bad.row, type(bad.error)) == (102, SchemaError)
    assert text is None or re.search("'obs' has text that is no list of numbers|steps of shape", str(bad.error))
    assert good is not None
    np.testing.assert_array_equal(read_column(good, "obs"), [[1, 2], [3, 4], [5, 6], [7, 8]])


def test_prose_with_brackets_is_text() -> None:
    assert column(table(2, obs=["(1) go", "(a, b) look"]), "obs").tolist() == ["(1) go", "(a, b) look"]
    assert column(table(2, obs=["[INST] go", "look"]), "obs").tolist() == ["[INST] go", "look"]


# Times.


ZONED, NAIVE = pa.array([1], pa.timestamp("ms", "UTC")), pa.array([1], pa.timestamp("ms"))


@pytest.mark.parametrize(
    ("before", "now", "fits"),
    [
        (ZONED, NAIVE, False),
        (NAIVE, ZONED, False),
        (["2024-01-01 10:00:00+09:00"], ["2024-01-01 09:00:00"], False),
        (["2024-01-01"], [5], False),
        ([5], ["2024-01-01"], False),
        (["2024-01-01 10:00:00+09:00"], ZONED, True),
        (pa.array([1], pa.timestamp("ns", "Asia/Tokyo")), ZONED, True),
        ([datetime.date(2024, 1, 1)], NAIVE, True),
    ],
)
def test_times_with_a_zone_and_without_are_not_mixed(before: Any, now: Any, fits: bool) -> None:
    prepared = settled(table(1, t=before))
    assert prepared.is_settled
    bad = prepare(table(1, t=now), prepared)[1]
    assert len(bad) == (not fits)
    assert fits or ("Column 't' holds" in str(bad[0]) and "where earlier rows have" in str(bad[0]))
