"""Tables for Spark, DuckDB, Polars and the like that point at the data files of a dataset version: nothing is copied."""
