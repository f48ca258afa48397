"""Parse text columns, as CSV has them or a single wrong cell makes them, as numbers, lists of numbers or times."""

from __future__ import annotations

import json
import re

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import arrow, columns
from offline_core.data.formats.packed import PACKED
from offline_core.data.formats.sources.text_form import MISSING
from offline_core.data.inputs.row_steps import as_sql
from offline_core.errors import SchemaError
from offline_core.runtime.sql import sql_expression

LISTS = pa.list_(pa.float64())
"""Stands for lists of numbers of any depth."""

NUMERIC_SHARE = 0.5
"""A column of text that has to hold numbers is one with some wrong cells if more than this share of it is numbers."""
SURE_SHARE = 0.9
"""One that may hold texts, such as codes, is one of numbers if at least this share of what is in it is numbers."""

_LIST = r"^\s*\[[\s\[]*[+-]?\.?\d"
_NUMBER = r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|nan|NaN|inf)"
_WRAPPED = r"^\s*(?:\w+\.)?(?:array|tensor)\s*\([\s\[(]*" + _NUMBER + r"[\s\d+\-.,eEnNaif\[\]()]*(?:,\s*\w+\s*=.*)?\)\s*$"
_TUPLE = r"^\s*[({][\s\[({]*" + _NUMBER + r"(?:[\s,\[\](){}]+" + _NUMBER + r")*[\s,]*[\])}][\s\])}]*$"
_BARE = r"^\s*" + _NUMBER + r"(?:\s*[\s,;|]\s*" + _NUMBER + r")+\s*$"
"""Vectors as Python and NumPy print them, and without brackets, which could also be one number with a decimal comma."""
_ONE_OR_TWO = r"^\s*[+-]?\d+,\d+\s*$"
"""Two whole numbers, or one with a decimal comma."""
_SIGN = r"^\s*[<>≤≥][<>≤≥=\s]*"
_LIMIT = _SIGN + r"[+-]?[\d.,]"
"""What a laboratory writes of a value beyond what it can measure."""
_WITH_COMMAS = r"^[+-]?(?:(?:\d+|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d*)?|\.\d+)$"
_WITH_POINTS = r"^[+-]?(?:\d+|[1-9]\d{0,2}(?:\.\d{3})+)(?:,\d+)?$"
"""A number with commas between its thousands and a decimal point, or the other way round; with neither sign it is both."""
_EITHER = r"^[+-]?[1-9]\d{0,2}[.,]\d{3}$"
"""A number whose only sign may stand before thousands or before decimals."""
_COMMAS_AND_POINT = r"^\s*[+-]?[1-9]\d{0,2}(,\d{3})+\.\d+\s*$"
_POINTS_AND_COMMA = r"^\s*[+-]?[1-9]\d{0,2}(\.\d{3})+,\d+\s*$"
"""Thousands and decimals in one number, which says which sign is which."""
_MILLIONS = r"^[+-]?[1-9]\d{0,2}((\.\d{3}){2,}|(,\d{3}){2,})$"
_LIKE_ADDRESS = r"(\.\d{3}){3}"
_TELLS_SIGNS = f"{_POINTS_AND_COMMA}|{_COMMAS_AND_POINT}|{_MILLIONS}"
_ZERO = r"^[+-]?0+([.,]0*)?$"
_KNOWN_UNITS = ("€", "$", "£", "¥", "EUR", "USD", "GBP", "CHF", "%")
"""Units that are no part of a name, as that of seat 10A is."""
_CURRENCY = r"[€$£¥]|EUR|USD|GBP|CHF"
_WITH_UNIT = (
    rf"^\s*(?P<sign>[+-]?)\s*(?P<before>(?:{_CURRENCY})?)\s*(?P<number>[+-]?(?:[\d.,]*\d\.?))"
    r"\s*(?P<unit>(?:[^\d\s.,'+-][^\d',.]*?)?)\s*$"
)
"""A number with a unit behind it or a currency before it."""
_CELL = "\x1e"
"""Stands between the texts while they are rewritten."""
_AS_JSON = tuple(
    (re.compile(pattern), new)
    for pattern, new in (
        (rf"(^|{_CELL})\s*(?:\w+\.)?(?:array|tensor)\s*\(([^{_CELL}]*?)(?:,\s*\w+\s*=[^{_CELL}]*)?\)\s*(?={_CELL}|$)", r"\1\2"),
        (r"[({]", "["),
        (r"[)}]", "]"),
        (r",\s*\]", "]"),
        (rf"(?<=[\d.\]nNf])[^\S{_CELL}]+(?=[-+\d.\[nNi])", ","),
        (r"(?<=\d)\.(?!\d)", ".0"),
        (r"(?<!\d)\.(?=\d)", "0."),
        (r"(?<![\deE])\+", ""),
        (r"\bnan\b", "NaN"),
        (r"\binf\b", "Infinity"),
    )
)
"""Tuples, arrays and numbers without commas between them, as lists of JSON."""
_REAL = r"^\s*[+-]?(\d+\.\d*|\.\d+|\d+[eE]|\d{20})"
"""How numbers begin that are no whole ones, or beyond those of 64 bits."""
_MAY_BE_LARGE = r"^\s*[+-]?\d{19}\s*$"
"""Whole numbers that may be beyond those of 64 bits: times in nanoseconds are not."""
_DATE = r"^\s*\d{4}-\d\d-\d\d"
ISO_FORMAT = "%Y-%m-%d %H:%M:%S"
"""The most common form of ISO 8601 in files, for advice on times of rows that are not there to look at."""
_OTHER_DATE = r"^\s*(?:\d{1,2}[/.-]\d{1,2}[/.-]\d{2,4}|\d{4}[/.]\d{1,2}[/.]\d{1,2}|\d{1,2}[- ][A-Za-z]{3}[- ]\d{2,4})\b"
_DATE_PARTS = re.compile(
    r"\s*(?:(?P<numbers>\d{1,2}(?P<by>[/.-])\d{1,2}(?P=by)(?P<year>\d{4}|\d{2}))"
    r"|(?P<first>\d{4}(?P<to>[/.])\d{1,2}(?P=to)\d{1,2})"
    r"|(?P<named>\d{1,2}(?P<of>[- ])[A-Za-z]{3}(?P=of)(?P<last>\d{4}|\d{2})))"
    r"(?:(?P<gap>[ T])\d{1,2}:\d\d(?P<seconds>:\d\d)?(?P<fraction>\.\d+)?(?P<half>\s?[AaPp][Mm])?)?\s*"
)
"""A date that is not by ISO 8601, and the time of the day."""
_DAY_OR_MONTH = r"^\s*\d{1,2}[/-]\d{1,2}[/-]\d"
_DAY_THEN_MONTH = r"^\s*(?:1[3-9]|2\d|3[01])[/-](?:0?[1-9]|1[0-2])[/-]\d"
_MONTH_THEN_DAY = r"^\s*(?:0?[1-9]|1[0-2])[/-](?:1[3-9]|2\d|3[01])[/-]\d"
"""How dates begin with a day and a month in any order, and those that tell in which."""
_EITHER_FIRST = re.compile(r"%-?([dm])[/-]%-?[dm][/-]")
"""Such dates in formats."""
DAY_FIRST, MONTH_FIRST = "d", "m"
EITHER_FIRST = frozenset({DAY_FIRST, MONTH_FIRST})
"""What comes first in dates, as far as it is known."""
MAX_DATES = 10_000
"""Texts that decide how dates are written."""
EARLIEST_YEAR = 1900
_NAMED_ZONE = re.compile(r"\d\s*[A-Z]{3,5}\s*$")
"""A name of a zone behind the time of the day, which may be one of several offsets."""
_ZONED = _DATE + r".*(Z|[+-]\d\d:?\d\d)\s*$"
"""Times by ISO 8601, alone and with their distance from UTC."""
_BELOW_MICROSECONDS = _DATE + r"[ T][\d:]+\.\d{7}"


def is_text(column: pa.ChunkedArray) -> bool:
    """Text, and not what RLlib packs as such."""
    return arrow.is_text(column.type) and not pc.any(pc.starts_with(column, PACKED)).as_py()


def has_lists(texts: pa.ChunkedArray) -> bool:
    """Whether one is a list of numbers, such as `[0.5, 1]`, or most are vectors of another form, such as `(0.5, 1)`."""
    if _any_matches(texts, _LIST):
        return True
    others = pc.match_substring_regex(texts, f"(?s){_WRAPPED}|{_TUPLE}|{_BARE}")
    return bool(2 * (pc.sum(others).as_py() or 0) > len(texts) - texts.null_count)


def is_mostly_numbers(texts: pl.Series, *, may_be_text: bool = False) -> bool:
    """Whether they are texts of which so many are numbers that the others are wrong."""
    if texts.dtype != pl.String:
        return False
    there = without_blanks(texts).drop_nulls()
    numbers = int(there.str.strip_chars().cast(pl.Float64, strict=False).is_not_null().sum())
    return numbers >= SURE_SHARE * len(there) > 0 if may_be_text else numbers > NUMERIC_SHARE * len(there)


def without_blanks(values: pl.Series) -> pl.Series:
    """The values, with nulls in place of empty and blank texts."""
    if values.dtype != pl.String:
        return values
    return values.set(values.str.strip_chars() == "", None)


def may_be_decimals(texts: pa.ChunkedArray) -> bool:
    """Whether texts may be numbers with commas: two whole numbers at most, such as `1,3`, or thousands and decimals."""
    known = texts.drop_null()
    one_or_none = pc.invert(pc.match_substring_regex(known, r"\d\D+\d"))
    decimals = rf"{_ONE_OR_TWO}|{_LIMIT}|{_POINTS_AND_COMMA}|{_COMMAS_AND_POINT}"
    return bool(pc.all(pc.or_(one_or_none, pc.match_substring_regex(known, decimals))).as_py())


def number_type(texts: pa.ChunkedArray, *, may_be_time: bool) -> pa.DataType:
    """What texts are numbers of: whole ones if none is more than that."""
    if may_be_time and _any_matches(texts, _DATE):
        unit = "ns" if _any_matches(texts, _BELOW_MICROSECONDS) else "us"
        return pa.timestamp(unit, "UTC" if _any_matches(texts, _ZONED) else None)
    if _any_matches(texts, _REAL):
        return pa.float64()
    large = texts.filter(pc.match_substring_regex(texts, _MAY_BE_LARGE))
    return pa.int64() if all(_is_one(text, pa.int64()) for text in pc.unique(large).to_pylist()) else pa.float64()


def parsed(texts: pa.ChunkedArray, kind: pa.DataType, name: str) -> pa.Array | pa.ChunkedArray:
    """The texts as numbers or times of that type, or as `LISTS`.

    Raises:
        SchemaError: one is none.
    """
    if kind == LISTS:
        return _lists(texts, name)
    try:
        return pc.utf8_trim_whitespace(texts.cast(pa.string())).cast(kind)
    except pa.ArrowInvalid as error:
        if _any_matches(texts, _OTHER_DATE):
            raise _no_iso(texts, name, beside_iso=pa.types.is_timestamp(kind)) from error
        others = [text for text in pc.unique(texts).to_pylist() if not _is_one(text, kind)]
        said = {text: f"{_no_number(text, kind, name)}{_remedy(pa.chunked_array([[text]]), as_sql(name))}" for text in others}
        rows = {row: said[text] for row, text in enumerate(texts.to_pylist()) if text in said}
        message = f"{_no_number(others[0], kind, name)}{_remedy(texts, as_sql(name))}"
        raise SchemaError(message, column=name).with_rows(rows) from error


def _is_one(text: str | None, kind: pa.DataType) -> bool:
    """Whether the text is a number, or a time, of the type."""
    try:
        pa.scalar(text and text.strip()).cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _no_number(text: str, kind: pa.DataType, name: str) -> str:
    if pa.types.is_timestamp(kind) and kind.tz is not None and _is_one(text, pa.timestamp(kind.unit)):
        return (
            f"Column {name!r} has the time {text!r}, which has no offset where others have one. Write the one that it has, "
            f"such as {text.strip()}+01:00, or all times in UTC, such as {text.strip()}Z."
        )
    what = "time" if pa.types.is_timestamp(kind) else "number"
    if what == "time" and _NAMED_ZONE.search(text):
        return f"Column {name!r} has the time {text!r}, whose zone is a name. Write its offset, such as +02:00 for CEST."
    none = f" If it stands for none: source.arguments: {{null_values: {{{name}: {json.dumps(text)}}}}}."
    return f"Column {name!r} has text that is no {what}, such as {text!r}.{none if text in MISSING else ''}"


def encode_hint(name: str, *, of_actions: bool = True) -> str:
    """How words that name actions, or categories of observations, become numbers."""
    if of_actions:
        return f"If its texts name actions, number them: columns: {{encode: {{{name}: {{form: index}}}}}}."
    return f"If its values are codes, make categories of them: columns: {{encode: {{{name}: {{categories: auto}}}}}}."


def _lists(texts: pa.ChunkedArray, name: str) -> pa.Array:
    arrow.check_no_nulls(texts, name)
    cells = texts.to_pylist()
    try:
        try:
            rows = json.loads(f"[{','.join(cells)}]")
        except ValueError:
            rows = json.loads(f"[{','.join(_as_json(cells))}]")
        array = np.array(rows)
    except (ValueError, RecursionError) as error:  # no lists, or of several lengths
        cut = next((cell for cell in cells if "..." in cell), None)
        what = str(error) if cut is None else f"NumPy printed it without its middle, {cut!r:.60}"
        raise _no_lists(texts, name, what) from error
    if len(array) != len(texts) or array.dtype.kind not in "iuf" or (array.ndim == 1 and len(array)):
        raise _no_lists(texts, name, f"{texts[0].as_py()!r:.40}")
    return arrow.to_arrow(array, name)


def _as_json(cells: list[str]) -> list[str]:
    text = _CELL.join(cells)
    for pattern, new in _AS_JSON:
        text = pattern.sub(new, text)
    return text.split(_CELL)


def is_other_date(texts: pa.ChunkedArray) -> bool:
    """Whether most are dates that are not written by ISO 8601."""
    count = pc.sum(pc.match_substring_regex(texts, _OTHER_DATE)).as_py() or 0
    return bool(2 * count > len(texts) - texts.null_count)


def date_formats(texts: pa.ChunkedArray) -> list[str]:
    """Return the `strptime` formats that can read all dates, the one with the most even steps first; empty if there is none."""
    dates = pl.Series(texts.drop_null().cast(pa.large_string()).slice(0, MAX_DATES)).str.strip_chars()
    seconds_by_format: dict[str, float] = {}
    for form in _formats_of(dates[0]) if len(dates) else []:
        times = _by_format(dates, form)
        if not times.null_count() and (times.dt.year() >= EARLIEST_YEAR).all():
            seconds_by_format[form] = float(times.diff().dt.total_seconds().abs().sum() or 0)
    return sorted(seconds_by_format, key=lambda form: seconds_by_format[form])


def _by_format(dates: pl.Series, form: str) -> pl.Series:
    """Dates of a format as times, in UTC if the format has an offset; null where they are not of it."""
    if "%z" in form:
        return dates.str.strptime(pl.Datetime("us", "UTC"), form, strict=False)
    return dates.str.strptime(pl.Datetime("us") if "%M" in form else pl.Date, form, strict=False).cast(pl.Datetime("us"))


def _formats_of(text: str) -> list[str]:
    """Return the formats that fit a date; two, if the month may come first."""
    if (match := _DATE_PARTS.fullmatch(text)) is None:
        return []
    clock = ""
    if match["gap"]:
        clock = match["gap"] + ("%I:%M" if match["half"] else "%H:%M") + (":%S" if match["seconds"] else "")
        clock += ("%.f" if match["fraction"] else "") + (f"{match['half'][:-2]}%p" if match["half"] else "")
    if match["first"]:
        return [match["to"].join(("%Y", "%m", "%d")) + clock]
    if match["named"]:
        return [match["of"].join(("%d", "%b", "%Y" if len(match["last"]) == 4 else "%y")) + clock]
    year = "%Y" if len(match["year"]) == 4 else "%y"
    form = match["by"].join(("%d", "%m", year)) + clock
    return [form] if match["by"] == "." else [form, swapped_format(form)]


def read_dates(name: str, form: str) -> str:
    """The expression that reads dates of a format."""
    return f"strptime({as_sql(name)}, '{form}')"


def has_other_dates(texts: pa.ChunkedArray) -> bool:
    """Whether there are dates in which the day or the month comes first, or nothing that tells."""
    return _any_matches(texts, _DAY_OR_MONTH) or texts.null_count == len(texts)


def first_in_dates(texts: pa.ChunkedArray) -> frozenset[str]:
    """What may come first in the dates, as far as they tell: either, one of the two, or none that reads all of them."""
    others = {DAY_FIRST: _MONTH_THEN_DAY, MONTH_FIRST: _DAY_THEN_MONTH}
    return frozenset(first for first, pattern in others.items() if not _any_matches(texts, pattern))


def as_times(
    texts: pa.ChunkedArray, name: str, form: str | None, first: frozenset[str] = EITHER_FIRST
) -> tuple[pl.Series, dict[int, str]]:
    """(the texts as times, in UTC if one has an offset, or as numbers if none is a date; what is said of rows that are none).

    Those rows are null.

    Arguments:
        form: how dates are written that are not by ISO 8601; None, or where they are known to be of another one: that one.
        first: what `first_in_dates` says of all texts that these are some of.

    Raises:
        SchemaError: several forms read the dates, and give other times.
    """
    is_other = _fits(texts, _OTHER_DATE)
    others = texts.filter(is_other)
    forms = [each for each in date_formats(others) if _first_of(each) <= first]
    dates = pl.Series(others.cast(pa.large_string())).str.strip_chars()
    if form is not None and (_first_of(form) <= first or not first) and not (forms and _by_format(dates, form).null_count()):
        forms, is_other = [form], pc.and_(texts.is_valid(), pc.invert(_fits(texts, _DATE)))
    if len(forms) > 1 and not _by_format(dates, forms[0]).equals(_by_format(dates, forms[1])):
        unfit = "" if form is None else f" The form {form} does not fit."
        raise SchemaError(
            f"Column {name!r} has the time {dates[0]!r}, and no other says whether the day or the month comes first: "
            f"{' or '.join(forms)}.{unfit}",
            column=name,
        )
    rest = pc.if_else(is_other, None, texts.cast(pa.string()))
    kind = number_type(rest, may_be_time=True)
    if pc.any(is_other).as_py() and not pa.types.is_timestamp(kind):
        kind = pa.timestamp("us", "UTC" if "%z" in (form or "") else None)
    said = dict[int, str]()
    try:
        read = parsed(rest, kind, name)
    except SchemaError as error:
        said = {**error.rows}
        read = parsed(pc.if_else(pa.array(np.isin(np.arange(len(texts)), [*said])), None, rest), kind, name)
    times = pl.Series(name, read)
    dates = pl.Series(name, pc.if_else(is_other, texts, None).cast(pa.large_string()))
    if dates.null_count() == len(dates):
        return times, said
    at = _by_format(dates.str.strip_chars(), forms[0]) if forms else times.clear(len(times))
    wrong = f"is not by {forms[0] if forms else 'a form that reads all dates'}"
    wrong += f", and {form} does not fit" if form is not None and form not in forms else ""
    if getattr(at.dtype, "time_zone", None) != kind.tz:
        wrong, at = "is without an offset where others have one, or the other way round", at.clear(len(at))
    lost = (dates.is_not_null() & at.is_null()).arg_true()
    said |= {row: f"Column {name!r} has the time {dates[row]!r}, which {wrong}." for row in lost}
    at = at.cast(times.dtype)
    return times.zip_with(dates.is_null(), at), said


def _first_of(form: str) -> frozenset[str]:
    """What comes first in dates of a format, if it is a day or a month with the other one behind it."""
    return frozenset(match[1] for match in [_EITHER_FIRST.match(form)] if match)


def _fits(texts: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """(N,) bool: the text begins as the pattern says; a null does not."""
    return pc.fill_null(pc.match_substring_regex(texts, pattern), False)


def swapped_format(form: str) -> str:
    """The format with day and month the other way round."""
    return form.replace("%d", "%_").replace("%m", "%d").replace("%_", "%m")


def no_times(texts: pa.ChunkedArray, name: str, earlier: str) -> SchemaError:
    """Return an error on texts of which none is a time by ISO 8601, where earlier rows have such.

    Arguments:
        earlier: what these have.
    """
    if _any_matches(texts, _OTHER_DATE):
        return _no_iso(texts, name, beside_iso=True)
    shown = next((f", such as {text!r}," for text in texts.drop_null().slice(0, 1).to_pylist()), "")
    return SchemaError(
        f"Column {name!r} holds texts that are no times{shown} where earlier rows have {earlier}; write all times in one way, "
        "or import the files separately.",
        column=name,
    )


def _no_iso(texts: pa.ChunkedArray, name: str, *, beside_iso: bool) -> SchemaError:
    """Return an error on dates that are not written by ISO 8601: how to read them, and what their form leaves open.

    Arguments:
        beside_iso: other rows have times by ISO 8601.
    """
    others = texts.filter(pc.match_substring_regex(texts, _OTHER_DATE))
    form, *more = date_formats(others) or date_formats(others.slice(0, 1)) or ["%d/%m/%Y"]
    is_open = bool(more) and more[0] == swapped_format(form)
    kept = ", t_as_text: t" if name == columns.T else ""  # or there would be two of that name
    said = "does not say whether the day or the month comes first. Say so" if is_open else "is not by ISO 8601. Read it"
    swapped = ", or %m before %d" if is_open else ""
    read, also = read_dates(name, form), ""
    if beside_iso:
        read = f"case when substr({as_sql(name)}, 8, 1) = '-' then {read_dates(name, ISO_FORMAT)} else {read} end"
        also = f" That reads the times of other rows, too, which are by ISO 8601: if not as {ISO_FORMAT}, change that."
    return SchemaError(
        f"Column {name!r} has the time {others[0].as_py().strip()!r}, which {said}: columns: "
        f"{{computed: {{iso_time: {json.dumps(read)}}}}}, mapping: {{t: iso_time{kept}}}{swapped}.{also}"
    )


def _no_lists(texts: pa.ChunkedArray, name: str, what: str) -> SchemaError:
    return SchemaError(
        f"Column {name!r} has text that is no list of numbers like [0.5, 1] as long as the others: {what}. Write it so, or a "
        "column a number and a list of their names as mapping; if it is text, declare a Text space."
        f"{_remedy(texts, as_sql(name))}"
    )


def _remedy(texts: pa.ChunkedArray, column: str) -> str:
    """The expression that makes numbers of texts like 0,5 or 12,345.60 or 21.5 C or <0.5.

    Arguments:
        column: an expression in SQL that gives the texts.
    """
    if _any_matches(texts, _LIMIT):
        limit = f"ltrim({column}, '<>≤≥= ')"
        said = "Of limits such as '<0.5', take the limit itself"
        without = pc.replace_substring_regex(texts, _SIGN, "")
        return f" {said}.{more}" if (more := _remedy(without, limit)) else _computed(said, f"cast({limit} as double)")
    remedy = "".join(_computed(said, expression) for said, expression in _readings(texts, column))
    return f"{remedy} A list of two is written [1, 3]." if remedy and _any_matches(texts, _ONE_OR_TWO) else remedy


def read_numbers(texts: pa.ChunkedArray, name: str) -> str | None:
    """The expression that reads all texts of a column as numbers, if they are sure to be some: `86,80 €`, `2.107,50`.

    All have to be of one form that says which sign stands before decimals, and all but zeros to have the same known unit.
    """
    known = pc.unique(texts.drop_null())
    readings = _readings(pa.chunked_array([known]), as_sql(name))
    if len(readings) != 1 or not _are_sure(known):
        return None
    [(_, expression)] = readings
    try:
        numbers = pl.DataFrame({name: pl.Series(known.cast(pa.large_string()))}).select(sql_expression(expression)).to_series()
    except pl.exceptions.PolarsError:  # a text is no number
        return None
    return None if numbers.null_count() else expression


def _are_sure(texts: pa.Array) -> bool:
    """Whether all texts are numbers of one form, with one known unit or with a comma and a point in one of them."""
    parts = pc.extract_regex(texts.cast(pa.large_string()), _WITH_UNIT)
    numbers = pc.struct_field(parts, "number")
    if parts.null_count or not any(_all_match(numbers, form) for form in (_WITH_COMMAS, _WITH_POINTS)):
        return False
    of = pc.filter(parts, pc.invert(pc.match_substring_regex(numbers, _ZERO)))
    units = {(part["before"], part["unit"].strip()) for part in pc.drop_null(of).to_pylist()}
    if len(units) != 1 or (_any_matches(numbers, _EITHER) and not _any_matches(numbers, _TELLS_SIGNS)):
        return False
    used = [unit for unit in units.pop() if unit]
    return (
        all(unit in _KNOWN_UNITS for unit in used)
        if used
        else _any_matches(numbers, f"{_POINTS_AND_COMMA}|{_COMMAS_AND_POINT}")
    )


def _readings(texts: pa.ChunkedArray, column: str) -> list[tuple[str, str]]:
    """(of what numbers, the expression that reads them): one, two if a sign may mean either, none if texts are no numbers."""
    parts = pc.extract_regex(texts.cast(pa.large_string()), _WITH_UNIT).drop_null()
    signs, before, numbers, units = (pc.struct_field(parts, name) for name in ("sign", "before", "number", "unit"))
    of, kinds = list[str](), [[kind for kind in pc.unique(part).to_pylist() if kind] for part in (before, units)]
    if any(len(kind) > 1 for kind in kinds):
        return []
    if kinds[0]:
        of.append(f"the currency {kinds[0][0]}")
        is_signed = pc.any(pc.not_equal(signs, "")).as_py()
        column = f"replace({column}, '{kinds[0][0]}', '')" if is_signed else f"ltrim({column}, ' {kinds[0][0]}')"
    if kinds[1]:
        of.append(f"the unit {kinds[1][0].strip()}")
        column = f"rtrim({column}, ' {kinds[1][0]}')"
    said = f"Of numbers with {' and '.join(of)}"
    also = f" and {' and '.join(of)}" if of else ""
    numbers = numbers.filter(pc.match_substring_regex(numbers, f"{_WITH_COMMAS}|{_WITH_POINTS}"))  # as others are no numbers
    has_commas, has_points = (_any_matches(numbers, sign) for sign in (",", r"\."))
    by_points, by_commas = (_all_match(numbers, form) for form in (_WITH_POINTS, _WITH_COMMAS))
    plain, without_commas = f"cast({column} as double)", f"cast(replace({column}, ',', '') as double)"
    without_points = f"replace({column}, '.', '')" if has_points and by_points else column
    decimals = f"cast(replace({without_points}, ',', '.') as double)"
    tells = _any_matches(numbers, _TELLS_SIGNS)
    if not tells and has_commas and _any_matches(numbers, r"^[+-]?[1-9]\d{0,2},\d{3}$"):  # 1,500 is 1.5 or 1500
        return [("If its commas separate thousands", without_commas), ("If they are decimal commas", decimals)]
    if not tells and has_points and by_points and by_commas and of:
        return [("If its points separate thousands", decimals), ("If they are decimal points", plain)]
    if by_commas and has_commas:
        return [(f"Its commas separate thousands{also and f'; {said[0].lower()}{said[1:]}'}", without_commas)]
    if by_commas:
        return [(said, plain)] if of else []
    if by_points and (has_commas or of or not _any_matches(numbers, _LIKE_ADDRESS)):
        return [(f"Of {'points that separate thousands' if has_points else 'decimal commas'}{also}", decimals)]
    return []


def _computed(of: str, expression: str) -> str:
    return f" {of}, compute it: columns: {{computed: {{NAME: {json.dumps(expression, ensure_ascii=False)}}}}}."


def _any_matches(texts: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def _all_match(texts: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(texts, pattern)).as_py())
