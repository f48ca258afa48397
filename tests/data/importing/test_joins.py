"""Times of joins: each side is read in the one form that it has, on one clock, or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from offline_core.data.formats.sources.listing import Listing
from offline_core.data.importing.columns_config import Join
from offline_core.data.importing.joins import OtherRows, first_in, open_join
from offline_core.errors import ConfigError, SchemaError
from offline_core.runtime.config import parse


def others(folder: Path, times: list[Any], **fields: Any) -> OtherRows:
    """The rows of a CSV file with prices 0, 1, 2 … at these times."""
    file = folder / "prices.csv"
    pl.DataFrame({"when": times, "price": range(len(times))}).write_csv(file)
    join = parse(Join, {"source": str(file), "asof": "when", "columns": ["price"], **fields})
    return OtherRows.read(join, open_join(join, Listing()))


def prices(other: OtherRows, times: list[Any]) -> list[int | None]:
    found, _, bad = other.joined(pl.DataFrame({"when": times}))
    assert bad == []
    return found["price"].to_list()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (["01/13/2025", "01/15/2025"], ["01/13/2025 10:00 AM", "01/15/2025 01:00 PM"]),
        (["01/13/2025", "01/15/2025"], ["14/01/2025", "16/01/2025"]),
        (["13.01.2025 00:00", "15.01.2025 00:00"], ["2025-01-14T00:00:00", "2025-01-15 12:00"]),
        (["2025-01-13T00:00Z", "2025-01-15T00:00Z"], ["2025-01-15T00:30:00+01:00", "2025-01-15T01:30:00+01:00"]),
    ],
)
def test_each_side_is_read_in_the_form_that_it_has(tmp_path: Path, theirs: list[str], ours: list[str]) -> None:
    assert prices(others(tmp_path, theirs), ours) == [0, 1]


def test_day_or_month_has_to_be_said_where_no_date_tells(tmp_path: Path) -> None:
    dates, ours = ["01/02/2025", "03/02/2025"], ["2025-01-31", "2025-03-01"]
    with pytest.raises(ConfigError, match=r"prices\.csv: Column 'when' has the time '01/02/2025', and no other says whether"):
        others(tmp_path, dates)
    assert prices(others(tmp_path, dates, time_format="%m/%d/%Y"), ours) == [0, 0]
    assert prices(others(tmp_path, dates, time_format="%d/%m/%Y"), ours) == [None, 1]
    with pytest.raises(ConfigError, match=r"In the source: .*%d/%m/%Y or %m/%d/%Y\. Say it by time_format of the join"):
        others(tmp_path, ["2025-01-31"]).joined(pl.DataFrame({"when": dates}))
    with pytest.raises(ConfigError, match="time_format '%H h' of the join"):
        others(tmp_path, ["10 h"], time_format="%H h")


def test_a_form_is_not_applied_to_a_side_that_has_another(tmp_path: Path) -> None:
    theirs, ours = ["01/13/2025", "02/03/2025"], ["14/01/2025", "04/02/2025"]
    assert prices(others(tmp_path, theirs, time_format="%m/%d/%Y"), ours) == [0, 1]
    assert prices(others(tmp_path, theirs, time_format="%d/%m/%Y"), ours) == [0, 1]
    with pytest.raises(ConfigError, match=r"%d/%m/%Y or %m/%d/%Y\. The form %d/%m/%y %H:%M does not fit"):
        others(tmp_path, theirs[1:], time_format="%d/%m/%y %H:%M")
    with pytest.raises(SchemaError, match=r"is not by a form that reads all dates, and %d/%m/%Y does not fit"):
        others(tmp_path, [*theirs, "1 Feb 2025"], time_format="%d/%m/%Y")


def test_all_rows_of_the_source_tell_whether_its_day_or_month_comes_first(tmp_path: Path) -> None:
    theirs, ours = ["2025-01-31", "2025-02-03"], ["01/02/2025", "03/02/2025"]
    for form in (None, "%m/%d/%Y"):
        other = others(tmp_path, theirs, time_format=form)
        assert prices(replace(other, first=first_in(pl.Series([*ours, "13/02/2025"]))), ours) == [0, 1]


def test_dates_that_are_equal_in_all_forms_are_read(tmp_path: Path) -> None:
    assert prices(others(tmp_path, ["01/01/2025", "02/02/2025"]), ["01/01/2025 10:00", "02/02/2025 10:00"]) == [0, 1]


@pytest.mark.parametrize(
    ("times", "first"),
    [
        (["01/02/2025", "13/02/2025"], "d"),
        (["1-2-25", "2-13-25 10:00"], "m"),
        (["01/02/2025", "13.02.2025", "2025-02-13", "13/13/2025"], "dm"),
        (["13/02/2025", "02/13/2025"], ""),
        ([1.5], "dm"),
    ],
)
def test_what_comes_first_in_dates(times: list[Any], first: str) -> None:
    assert first_in(pl.Series(times)) == {*first}


def test_nanoseconds_are_times(tmp_path: Path) -> None:
    times = ["2025-01-01 00:00:00.123456789", "2025-01-02 00:00:00.123456790"]
    assert prices(others(tmp_path, times), ["2025-01-01 00:00:01", "2025-01-02 00:00:00.123456789"]) == [0, 0]


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (["2025-01-01", "unknown"], "text that is no time, such as 'unknown'. 1 of 2 rows have no time that can be read"),
        (["2025-01-01T00:00Z", "2025-01-02T00:00"], "the time '2025-01-02T00:00', which has no offset where others have one"),
        (["13/01/2025", "31/02/2025"], "which is not by a form that reads all dates. 2 of 2 rows"),
        (["13/01/2025 10:00", "2025-01-01T00:00Z"], "without an offset where others have one"),
    ],
)
def test_times_of_a_join_that_cannot_be_read_are_refused(tmp_path: Path, times: list[str], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        others(tmp_path, times)


def test_rows_of_a_join_without_a_time_are_noted_and_those_of_the_source_are_bad(tmp_path: Path) -> None:
    other = others(tmp_path, ["2025-01-01", None, "2025-01-03", " "])
    assert other.notes == ("Rows of the join without when are left out: 2.",)
    found, missing, bad = other.joined(pl.DataFrame({"when": ["2025-01-02", "unknown", None, "2024-01-01", "", " "]}))
    assert (found["price"].to_list(), missing) == ([0, None, None, None, None, None], 1)
    assert [(row, str(error)) for row, error in bad] == [
        (1, "Column 'when' has text that is no time, such as 'unknown'. Correct it, or leave it empty.")
    ]


def test_times_with_and_without_a_zone_are_compared_in_a_zone_that_is_said(tmp_path: Path) -> None:
    instants, local = ["2025-06-01T00:00Z", "2025-06-01T02:00Z"], ["2025-06-01 02:00", "2025-06-01 03:30"]
    with pytest.raises(ConfigError, match=r"those of the source have none\. Say by time_zone"):
        others(tmp_path, instants).joined(pl.DataFrame({"when": local}))
    with pytest.raises(
        ConfigError, match=r"the times of the source have an offset or a zone, and those of .*prices\.csv have none"
    ):
        others(tmp_path, local).joined(pl.DataFrame({"when": instants}))
    assert prices(others(tmp_path, instants, time_zone="Europe/Berlin"), local) == [0, 0]
    assert prices(others(tmp_path, instants, time_zone="UTC"), local) == [1, 1]
    assert prices(others(tmp_path, local, time_zone="Europe/Berlin"), instants) == [0, 1]
    in_autumn = "2025-10-26 02:30"
    *_, bad = others(tmp_path, instants, time_zone="Europe/Berlin").joined(pl.DataFrame({"when": [in_autumn]}))
    assert "comes twice or never in Europe/Berlin" in str(bad[0].error)
    with pytest.raises(SchemaError, match="comes twice or never in Europe/Berlin"):
        others(tmp_path, [in_autumn], time_zone="Europe/Berlin").joined(pl.DataFrame({"when": instants}))


def test_times_are_not_compared_with_numbers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it holds numbers in the source and times there"):
        others(tmp_path, ["2025-01-01"]).joined(pl.DataFrame({"when": [1735689600]}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"time_zone": "Mars"}, "'Mars' is no time zone"), ({"on": ["k"], "asof": None, "time_zone": "UTC"}, "no asof")],
)
def test_a_zone_of_a_join_has_to_be_one_and_to_have_times(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(Join, {"source": "there.csv", "asof": "when", "columns": ["price"], **fields})
