"""What a dataset or a policy is, in words: for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from offline_core.data.datasets.about import read_about
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.statistics import QUANTILE_ERROR, ColumnStatistics, Summary
from offline_core.data.episodes import columns
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.number_names import number_names
from offline_core.runtime.units import date_text, duration_text

MAX_DIMENSIONS = 32
LEAST_DATE = 10**17
"""Column `time` from here on is in nanoseconds since 1970: 1973. Units of a log's own are smaller numbers."""
COLUMN_NUMBERS = ("mean", "std", "min", "5 %", "median", "95 %", "max")


def dataset_facts(dataset: Dataset) -> dict[str, str]:
    """What one version of a dataset is; reads the schema of its first file.

    Raises:
        CorruptFileError, StorageError: that file cannot be read.
    """
    manifest, statistics = dataset.manifest, dataset.statistics
    observation_space, action_space = dataset.spaces
    facts = {
        "shown": f"version {manifest.version}, fingerprint {manifest.fingerprint}, {manifest.created_at:%Y-%m-%d %H:%M} UTC",
        "format": manifest.format,
        **made_by(manifest.operation, manifest.provenance),
    }
    if manifest.actions is not None:
        facts["played with"] = f"actions {manifest.actions}"
    if dataset.is_foreign:
        facts["rows"] = f"{sum(file.rows for file in manifest.files):,}"
    else:
        facts |= {
            "episodes": f"{statistics.episodes:,} ({statistics.terminated:,} terminated, {statistics.truncated:,} truncated)",
            "steps": f"{statistics.steps:,}",
            "return": summary_text(statistics.returns),
            "length": summary_text(statistics.lengths),
        }
    about = {} if dataset.is_foreign else read_about(dataset.location).facts
    return (
        facts
        | about
        | {
            "observations": str(observation_space or "not said"),
            "actions": str(action_space or "not said"),
            "columns": ", ".join(dataset.schema.names),
        }
    )


def made_by(operation: Operation, provenance: Mapping[str, str]) -> dict[str, str]:
    """The operation, the version of the code, and user code by its path."""
    code = provenance.get("git", provenance.get("offline-rl-pipeline", "unknown"))
    user_code = [f"{path} (file {digest})" for path, digest in operation.code.items()]
    return {"made by": f"{operation.stage} (code {code})"} | ({"user code": ", ".join(user_code)} if user_code else {})


def summary_text(summary: Summary) -> str:
    """Mean, standard deviation, and the range."""
    if not summary.count:
        return "none"
    return f"{summary.mean:,.1f} ± {summary.std:,.1f} ({summary.min:,.1f} to {summary.max:,.1f})"


def column_rows(
    statistics: Mapping[str, ColumnStatistics], made_of: InputColumns | None = None
) -> Iterator[tuple[str, Sequence[float | str | None], int]]:
    """(name, `COLUMN_NUMBERS`, values that are not finite) of each dimension of each column; of times as dates and durations.

    A quantile that the histogram knows too coarsely is None.

    Arguments:
        made_of: what the observations are made of.

    Raises:
        CorruptFileError: a stored histogram cannot be read.
    """
    for name, column in statistics.items():
        quantiles = [column.quantile(share) for share in (0.05, 0.5, 0.95)]
        names = number_names(name, len(column.mean), made_of)
        for i in range(min(len(column.mean), MAX_DIMENSIONS)):
            low, middle, high = (_if_exact_enough(quantile[i], column.std[i]) for quantile in quantiles)
            numbers = (column.mean[i], column.std[i], column.min[i], low, middle, high, column.max[i])
            are_dates = name == columns.TIME and (column.min[i] or 0) >= LEAST_DATE
            yield names[i], _dates(numbers) if are_dates else numbers, column.nan[i] + column.infinite[i]
        if len(column.mean) > MAX_DIMENSIONS:
            yield f"{name} … {len(column.mean) - MAX_DIMENSIONS} more", [None] * len(COLUMN_NUMBERS), 0


def _if_exact_enough(quantile: float | None, std: float) -> float | None:
    """None if the quantile may be off by more than the values spread, as it may for times in nanoseconds since 1970."""
    return None if quantile is None or 0 < std < abs(quantile) * QUANTILE_ERROR else quantile


def _dates(numbers: Sequence[float | None]) -> tuple[str | None, ...]:
    """`COLUMN_NUMBERS` of nanoseconds since 1970: dates, and the standard deviation as a duration."""
    texts = (duration_text if name == "std" else date_text for name in COLUMN_NUMBERS)
    scales = (1e-9 if name == "std" else 1.0 for name in COLUMN_NUMBERS)
    return tuple(None if x is None else text(x * scale) for x, text, scale in zip(numbers, texts, scales, strict=True))
