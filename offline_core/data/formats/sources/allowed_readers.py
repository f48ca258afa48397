"""Which readers and arguments of theirs may be used where `OFFLINE_ROOTS` or `OFFLINE_IMPORTS` limits what runs may do.

Arguments can be locations, servers and modules by names of their own, so only those are allowed that are known to be none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from offline_core.data.store import allowed_roots
from offline_core.errors import ConfigError
from offline_core.runtime import allowed_imports

_OF_PARQUET = "columns filter tensor_column_schema include_row_hash"
_OF_FILES = (
    "filesystem arrow_open_stream_args partition_filter partitioning include_paths ignore_missing_paths shuffle "
    "file_extensions parallelism concurrency override_num_blocks num_cpus num_gpus memory"
)
_OF_RAY = {
    "read_avro": "",
    "read_binary_files": "",
    "read_csv": "",
    "read_images": "size mode",
    "read_json": "lines",
    "read_numpy": "allow_pickle numpy_load_args",
    "read_orc": "",
    "read_parquet": _OF_PARQUET,
    "read_text": "encoding drop_empty_lines",
    "read_tfrecords": "",
}
"""Functions of Ray Data that read files at their paths and nothing else."""

_OF_SCANS = "n_rows low_memory include_file_paths"
_OF_TEXT = f"{_OF_SCANS} schema schema_overrides infer_schema_length ignore_errors batch_size"
_OF_HIVE = f"{_OF_SCANS} hive_partitioning"
_OF_ARRAYS = "max_expansion columns"
_OWN = {
    "parquet": f"{_OF_HIVE} parallel use_statistics missing_columns extra_columns",
    "csv": f"{_OF_TEXT} has_header separator comment_prefix quote_char skip_rows skip_lines null_values empty_string_is_null "
    "infer_schema encoding skip_rows_after_header try_parse_dates eol_char new_columns truncate_ragged_lines raise_if_empty "
    "decimal_comma missing_utf8_is_empty_string",
    "ndjson": _OF_TEXT,
    "ipc": _OF_HIVE,
    "avro": "n_rows",
    "delta": "version",
    "iceberg": "snapshot_id",
    "lance": "version",
    "sample_batch": f"{_OF_ARRAYS} module_id",
}


def check_reader(format: str, arguments: Mapping[str, object]) -> None:
    """Check a built-in format or a function of Ray Data; a user's reader is named by its module, see `allowed_imports`.

    Raises:
        ConfigError: a variable limits what runs may do, and it may lead elsewhere.
    """
    if (variable := _limit()) is None:
        return
    if format.startswith("read_") and format not in _OF_RAY:
        raise ConfigError(
            f"source.format: {format} may lead to other places than the source, so it cannot be used where {variable} is set. "
            f"Choose auto, a format such as delta or iceberg, or one of {', '.join(_OF_RAY)}."
        )
    names = f"{_OF_FILES} {_OF_RAY[format]}" if format in _OF_RAY else f"filesystem {_known(format)}"
    _check_names(format, arguments, names.split(), variable)


def _known(format: str) -> str:
    if format == "auto":  # the arguments of any
        return " ".join(_OWN.values())
    return _OWN.get(format, _OF_ARRAYS)


def _check_names(format: str, arguments: Iterable[str], known: Iterable[str], variable: str) -> None:
    allowed = sorted(set(known))
    if other := next((name for name in arguments if name not in allowed), None):
        raise ConfigError(
            f"source.arguments.{other} of {format} may name code or another place, so it cannot be used where {variable} is "
            f"set. Leave it out; allowed are {', '.join(allowed)}."
        )


def _limit() -> str | None:
    """The variable that limits what runs may do."""
    variables = (allowed_roots.VARIABLE, allowed_imports.VARIABLE)
    return next((variable for variable in variables if os.environ.get(variable, "").strip()), None)
