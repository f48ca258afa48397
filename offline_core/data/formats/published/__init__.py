"""Tables for Spark, DuckDB, Polars and the like that point at the data files of a dataset version: nothing is copied.

Each is a folder in that of the dataset: `_delta_log`, `_iceberg`.
"""

from typing import Literal, get_args

TableFormat = Literal["delta", "iceberg"]
TABLE_FORMATS: tuple[TableFormat, ...] = get_args(TableFormat)
FOLDERS = {"delta": "_delta_log", "iceberg": "_iceberg"}
TAG = "published-"
"""Prefix of the tag of the version that a table shows."""
