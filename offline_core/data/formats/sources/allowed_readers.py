"""Which readers and arguments of theirs may be used where `OFFLINE_ROOTS` or `OFFLINE_IMPORTS` limits what runs may do.

Arguments can be locations, servers and modules by names of their own, so only those are allowed that are known to be none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from offline_core.data.formats.sources.locations import FILESYSTEM
from offline_core.data.formats.sources.readers import FORMATS
from offline_core.data.store import allowed_roots
from offline_core.errors import ConfigError
from offline_core.runtime import allowed_imports

_OF_FILES = (
    f"{FILESYSTEM} arrow_open_stream_args partition_filter partitioning include_paths ignore_missing_paths shuffle "
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
    "read_parquet": "columns filter tensor_column_schema include_row_hash",
    "read_text": "encoding drop_empty_lines",
    "read_tfrecords": "",
}
"""Functions of Ray Data that read files at their paths and nothing else."""


def check_reader(format: str, arguments: Mapping[str, object]) -> None:
    """Check a built-in format or a function of Ray Data; a user's reader is named by its module, see `allowed_imports`.

    Raises:
        ConfigError: a variable limits what runs may do, and it may lead elsewhere.
    """
    variables = (allowed_roots.VARIABLE, allowed_imports.VARIABLE)
    if (variable := next((name for name in variables if os.environ.get(name, "").strip()), None)) is None:
        return
    if format.startswith("read_") and format not in _OF_RAY:
        raise ConfigError(
            f"source.format: {format} may lead to other places than the source, so it cannot be used where {variable} is set. "
            f"Choose auto, a format such as delta or iceberg, or one of {', '.join(_OF_RAY)}."
        )
    if format in _OF_RAY:
        known = {*_OF_FILES.split(), *_OF_RAY[format].split()}
    else:  # auto takes the arguments of any
        known = {FILESYSTEM}.union(*(form.arguments for name, form in FORMATS.items() if format in ("auto", name)))
    if other := next((name for name in arguments if name not in known), None):
        raise ConfigError(
            f"source.arguments.{other} of {format} may name code or another place, so it cannot be used where {variable} is "
            f"set. Leave it out; allowed are {', '.join(sorted(known))}."
        )
