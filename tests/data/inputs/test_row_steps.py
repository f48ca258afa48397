"""What a step makes of a row, and which rows are of no use."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest

from offline_core.data.inputs.bins import Bins, Discretisation
from offline_core.data.inputs.computing import stepped
from offline_core.data.inputs.encoding import Encoding
from offline_core.data.inputs.row_steps import RowSteps
from offline_core.errors import SchemaError

ROOM = pl.DataFrame(
    {
        "sensors": [{"tin": 20.0, "tout": 5}, {"tin": None, "tout": 7}, {"tin": float("nan"), "tout": 9}],
        "mode": ["heat", None, "off"],
        "price": ["1.5", "n/a", ""],
        "busy": [True, None, False],
    }
)


def test_steps_see_what_earlier_ones_made() -> None:
    steps = RowSteps(
        columns={"sensors.tin": "number", "sensors.tout": "number", "mode": "text", "busy": "flag"},
        fill={"sensors.tin": 21.0, "mode": "off", "busy": False},
        computed={"warmer": "sensors.tin - sensors.tout", "cost": "case when mode = 'heat' then warmer * 2 else -1 end"},
        encode={"mode": Encoding(categories=["off", "heat"])},
    )
    found, bad = stepped(steps, ROOM)
    assert bad == []
    assert found["warmer"].to_list() == [15, 14, 12]
    assert found["cost"].to_list() == [30, -1, -1]
    assert found["mode"].to_list() == [[0, 1], [1, 0], [1, 0]]
    assert found["busy"].to_list() == [True, False, False]


def test_an_instant_has_one_hour_whatever_its_zone() -> None:
    at = pl.DataFrame({"at": [datetime(2026, 1, 31, 23, 30, tzinfo=UTC)]})
    steps = RowSteps(columns={"at": "any"}, computed={"hour": "date_part('hour', at)"})
    berlin = at.with_columns(pl.col("at").dt.convert_time_zone("Europe/Berlin"))
    assert [stepped(steps, frame)[0]["hour"].to_list() for frame in (at, berlin)] == [[23], [23]]


def test_rows_of_no_use_are_named_once() -> None:
    steps = RowSteps(
        columns={"price": "number", "mode": "text"},
        fill={"price": 0.0},
        computed={"log_price": "ln(price)", "both": "price + log_price"},
        encode={"mode": Encoding(categories=["off"])},
    )
    found, bad = stepped(steps, ROOM)
    assert found["price"].to_list() == [1.5, 0.0, 0.0]
    reasons = {row: str(error) for row, error in bad}
    assert reasons == {
        0: "Column 'mode' holds 'heat', which is none of its categories off; add it to them, set a fill, or other: true.",
        1: "Column 'price' holds 'n/a', which is no number.",
        2: "Column 'log_price': 'ln(price)' is -inf.",
    }


def test_an_expression_fails_on_its_own_rows_only() -> None:
    rows = pl.DataFrame({"day": ["2026-01-31", "31.01.26", "2026-02-01"]})
    found, bad = stepped(RowSteps(columns={"day": "any"}, computed={"date": "strptime(day, '%Y-%m-%d')"}), rows)
    assert [each.row for each in bad] == [1]
    assert found["date"].is_null().to_list() == [False, True, False]
    with pytest.raises(SchemaError, match=r"Column 'x': 'day \* 2' cannot be computed of day \(String\)"):
        stepped(RowSteps(columns={"day": "any"}, computed={"x": "day * 2"}), rows)


def test_only_the_steps_that_some_columns_need() -> None:
    steps = RowSteps(
        columns={"a": "number", "b": "number", "c": "text"},
        fill={"a": 1.0, "c": "x"},
        computed={"ab": "a + b", "twice": "ab * 2", "other": "b"},
        encode={"c": Encoding(categories=["x"])},
    )
    assert steps.of(["twice"]) == RowSteps(
        columns={"a": "number", "b": "number"}, fill={"a": 1.0}, computed={"ab": "a + b", "twice": "ab * 2"}
    )
    assert steps.of(["c"]) == RowSteps(columns={"c": "text"}, fill={"c": "x"}, encode=steps.encode)


@pytest.mark.parametrize(
    ("encoding", "codes"),
    [
        (Encoding(categories=["b", "a"], form="index"), [1, 0, -1, -1]),
        (Encoding(categories=["b", "a"], form="index", other=True), [1, 0, 2, 2]),
    ],
)
def test_codes_of_categories(encoding: Encoding, codes: list[int]) -> None:
    assert encoding.codes(pl.Series(["a", "b", "c", None])).tolist() == codes


def test_categories_of_numbers() -> None:
    assert Encoding(categories=[1, 2.5]).codes(pl.Series([2.5, 1, 3, None])).tolist() == [1, 0, -1, -1]  # type: ignore[list-item]
    with pytest.raises(ValueError, match="quote on, off, yes and no in YAML"):
        Encoding(categories=["heat", False])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="different values"):
        Encoding(categories=["a", "a"])


@pytest.mark.parametrize(
    ("declared", "bins"),
    [
        (Discretisation(values=[16, 18, 22]), Bins(edges=[17, 20], values=[16, 18, 22])),
        (Discretisation(edges=[0, 1, 3]), Bins(edges=[1], values=[0.5, 2], bounds=(0, 3))),
        (Discretisation(equal=2), Bins(edges=[4.5], values=[2.25, 6.75])),
        (Discretisation(quantiles=2), Bins(edges=[4.5], values=[2, 6])),
    ],
)
def test_bins(declared: Discretisation, bins: Bins) -> None:
    assert declared.bins(pl.arange(0, 10, eager=True).cast(float).to_numpy()) == bins


def test_codes_of_bins() -> None:
    bins = Bins(edges=[1], values=[0.5, 2], bounds=(0, 3))
    assert bins.codes(np.array([0, 0.9, 1, 3, 3.1, np.nan])).tolist() == [0, 0, 1, 1, -1, -1]
    with pytest.raises(SchemaError, match="repeat so much"):
        Discretisation(quantiles=3).bins(pl.Series([1.0, 1, 1, 2]).to_numpy())
