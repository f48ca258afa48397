"""Conditions that would read, ask, run or fill the memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from offline_core.data.curation.condition import Condition
from offline_core.data.formats.sources.scans import ParquetFile
from offline_core.data.store.location import Location

ROWS = pl.DataFrame({"a": [1, 2, 3], "b": ["x", "yy", "z" * 50], "obs": [[1.0, 2.0]] * 3, "episode": [1, 1, 2]})

READERS = ("read_csv", "read_parquet", "read_json", "read_ipc", "read_ndjson", "scan_csv", "glob", "read_text")
QUERIES = (
    "a in (select * from {0})",
    "exists (select 1 from {0})",
    "a = (select max(a) from {0})",
    "a in (from {0})",
    "a = any(select a from {0})",
    "case when a in (select a from {0}) then true end",
)
FILES = (
    "a in (select a from '{0}')",
    "a in (from '{0}')",
    'a in (table "{0}")',
    "a in (values ('{0}'))",
    "a in (with x as (select * from read_csv('{0}')) select * from x)",
    "a in (select 1 union select * from read_csv('{0}'))",
    "a in (/**/select/**/a/**/from/**/read_csv('{0}'))",
    "a in (sElEcT a FrOm rEaD_cSv('{0}'))",
    "a in (select\na\nfrom\n\"read_csv\"('{0}'))",
    "read_csv('{0}') is null",
    "\"read_csv\"('{0}') is null",
    "b.read_csv('{0}') is null",
    "a::read_csv('{0}') > 1",
    "cast(a as read_csv('{0}')) > 1",
    "load_extension('{0}')",
    "copy (select 1) to '{0}'",
    "a > 1; copy x to '{0}'",
    "attach '{0}'",
    "set x = '{0}'",
    "pragma '{0}'",
    "a > 1 union select * from read_csv('{0}')",
    "a > 1 -- ' or read_csv('{0}')",
    "b = 'x\\' or a in (select a from read_csv('{0}')) or b = 'y'",
    "b = $$x$$ or a in (select a from read_csv('{0}'))",
    "b = E'\\'' or a in (select a from read_csv('{0}'))",
    "`a` in (select a from read_csv('{0}'))",
    "columns(select * from read_csv('{0}')) > 1",
    "a > 1 as (select * from read_csv('{0}'))",
    "avg(a) over (order by (select 1 from read_csv('{0}'))) > 1",
    "a between (select a from read_csv('{0}')) and 3",
)
LARGE = (
    "rpad(b, 99999999999, 'x') = 'a'",
    "lpad(b, 99999999999, 'x') = 'a'",
    "repeat(b, 99999999999) = 'a'",
    "replace(replace(replace(b, '', '{x}'), '', '{x}'), '', '{x}') = 'a'",
    "array_to_string(obs, '{x}') = 'a'",
    "generate_series(1, 99999999999) = 1",
    "range(1, 99999999999) = 1",
    "explode(obs) > 1",
    "unnest(obs) > 1",
    "b ~ '((((a{{1000}}){{1000}}){{1000}}){{1000}})'",
    "b ~ '(x+x+)+y'",
    "b ~ '{x}'",
    "b ~ '('",
    "b ~* '(?P<a>'",
    "b like '{percents}'",
    "regexp_like(b, '{x}', 'imsx')",
    "obs[99999999999999999999] > 1",
    "obs[9223372036854775807] > 1",
    "obs[-9223372036854775808] > 1",
    "obs[0] > 1",
    "a > {nines}",
    "a > 1e999999999",
    "a > -1e-999999999",
    "round(a, 999999999) > 1",
    "round(a, -999999999) > 1",
    "pow(a, 99999999999) > 1",
    "pow(pow(pow(9, 99), 99), 99) > a",
    "a % 0 = 1",
    "a // 0 = 1",
    "a / 0 = 1",
    "mod(a, 0) = 1",
    "left(b, 99999999999) = 'a'",
    "right(b, -99999999999) = 'a'",
    "substr(b, 99999999999, 99999999999) = 'a'",
    "substr(b, -9223372036854775807, 9223372036854775807) = 'a'",
    "left(b, a) = 'a'",
    "interval '99999999999999999999 years' > interval '1 day'",
    "interval 'x' > a",
    "date '9999999-99-99' > date '2026-01-01'",
    "timestamp '{x}' > timestamp '2026-01-01'",
    "date_part('{x}', date '2026-01-01') = 1",
    "cast('{x}' as int) = 1",
    "cast(b as timestamp) = timestamp '2026-01-01'",
    "a::tinyint::double::text::date = date '2026-01-01'",
    "quantile_cont(a, 99) > 1",
    "quantile_disc(a, -1) > 1",
    "concat(b, b, b, b) = 'x'",
    "array_contains(obs, 'x')",
    "array_get(obs, 99999999999) > 1",
    "({open}",
    "{open}a > 1{close}",
    "{nots} (a > 1)",
    "{minuses} a > 1",
    "{ors} true",
    "a {plus} > 1",
    "{cases} true {ends}",
    "obs{subscripts} > 1",
    "a{casts} > 1",
    "greatest({many}) > 1",
    "a in ({numbers})",
    "b in ('{x}', '{x}')",
    "{very_long}",
    "a.b.c.d.e.f > 1",
    "* > 1",
    "\"*\" > 1",
    "\"^.*$\" > 1",
    "columns('.*') > 1",
    "a > 1 \0",
    "a > \u202e1",
    "'",
    "\"",
    "a = '\ud800'",
    ")(",
    "a b c d",
    "end end end",
    "distinct from is not",
    "case when then else end",
    "in in in",
)  # fmt: skip
FILLED = {
    "x": "x" * 990,
    "percents": "%_" * 480,
    "nines": "9" * 39,
    "open": "(" * 5000,
    "close": ")" * 5000,
    "nots": "not " * 5000,
    "minuses": "- " * 5000,
    "ors": "a > 1 or " * 5000,
    "plus": "+ a " * 5000,
    "cases": "case when a > 1 then " * 2000,
    "ends": "end " * 2000,
    "subscripts": "[1]" * 5000,
    "casts": "::int" * 5000,
    "many": ", ".join(["a"] * 9000),
    "numbers": ", ".join(map(str, range(15_000))),
    "very_long": "a > 1 and " * 100_000,
}


def inputs(folder: Path) -> dict[str, Callable[[], Any]]:
    """Each as a condition on rows, and the shorter ones on a file that is read."""
    canary = str(folder / "outside" / "canary")
    table = folder / "table.parquet"
    ROWS.write_parquet(table)
    ours, port = str(table), (folder / "port").read_text()
    texts = [query.format(f"{reader}('{canary}')") for reader in READERS for query in QUERIES[:1]]
    texts += [query.format(f"read_csv('{canary}')") for query in QUERIES]
    texts += [
        query.format(f"read_csv('{address}')")
        for query in QUERIES[:3]
        for address in (f"http://127.0.0.1:{port}/x", "s3://b/x")
    ]
    texts += [text.format(canary) for text in FILES]
    texts += [text if "{" not in text else text.format(**FILLED) for text in LARGE]

    def on_rows(text: str) -> Any:
        condition = Condition.sql(text)
        condition.require(ROWS.columns)
        return condition.met(ROWS), condition.met(ROWS, within="episode")

    def on_file(text: str) -> Any:
        return list(ParquetFile(Location.of(ours), where=text).batches())

    calls: dict[str, Callable[[], Any]] = {}
    for number, text in enumerate(texts):
        calls[f"rows {number} {text[:60]!a}"] = lambda text=text: on_rows(text)  # type: ignore[misc]
        if len(text) < 2000:
            calls[f"file {number} {text[:60]!a}"] = lambda text=text: on_file(text)  # type: ignore[misc]
    return calls
