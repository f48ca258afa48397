"""Read steps from a SQLite database, by any query.

    offline import runs/steps.sqlite -o runs/from-sqlite -s source.format=examples.reader:Sqlite \\
        -s environment.id=CartPole-v1
    offline import runs/steps.sqlite -o runs/late -s source.format=examples.reader:Sqlite -s environment.id=CartPole-v1 \\
        -s source.arguments.query='SELECT * FROM steps WHERE t >= 100'

The names of the columns are the query's; `mapping` says which is what, as for any other source.
"""

import contextlib
import sqlite3
from collections.abc import Iterator

import pyarrow as pa


class Sqlite:
    """Reads some thousand rows at a time. It opens the database late, because the reader may be sent to another process."""

    def __init__(self, path: str, *, query: str = "SELECT * FROM steps", rows: int = 10_000) -> None:
        self.uri, self.query, self.rows = path, query, rows

    def batches(self) -> Iterator[pa.Table]:
        with contextlib.closing(sqlite3.connect(f"file:{self.uri}?mode=ro", uri=True)) as database:
            found = database.execute(self.query)
            names = [name for name, *_ in found.description]
            while rows := found.fetchmany(self.rows):
                yield pa.table(dict(zip(names, zip(*rows, strict=True), strict=True)))
