"""Scores of the episodes of one dataset version, as a table that a pruning can choose by."""

from __future__ import annotations

import hashlib
import io
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.result_cache import RESULT_FILE, stored_values
from offline_core.data.episodes import columns
from offline_core.data.episodes.arrow import refuse_extension_types
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, CorruptFileError

SCORES = "scores.parquet"
SCORE, IS_OUTLIER, REASON = "outlier_score", "is_outlier", "reason"
SCORE_COLUMNS = (SCORE, IS_OUTLIER)
"""What a condition may name."""
_DATASET = b"offline.dataset"


@dataclass(frozen=True, slots=True)
class Scores:
    """One row an episode, in the order of the dataset."""

    table: pl.DataFrame
    sha256: str
    """Of the file: prunings by other scores are others."""


def write_scores(
    location: Location,
    dataset: Dataset,
    index: pl.DataFrame,
    score: np.ndarray,
    is_outlier: np.ndarray,
    reason: Sequence[str],
    names: Sequence[str],
    features: np.ndarray,
) -> None:
    """Write the Parquet file; its metadata names the version.

    Arguments:
        index: eps_id and t_started of the E episodes.
        score, is_outlier, reason: (E,)
        names, features: F names and (E, F) numbers that the scores were computed from.
    """
    table = index.with_columns(
        pl.Series(SCORE, score, pl.Float64),
        pl.Series(IS_OUTLIER, is_outlier, pl.Boolean),
        pl.Series(REASON, [text or None for text in reason], pl.String),
        *(pl.Series(name, features[:, i], pl.Float64) for i, name in enumerate(names)),
    ).to_arrow()
    file = io.BytesIO()
    metadata = {_DATASET: dataset.manifest.fingerprint.encode()}
    pq.write_table(table.replace_schema_metadata(metadata), file, write_page_checksum=True)
    location.write(file.getvalue())


def read_scores(location: Location) -> bytes:
    """Read the file of scores.

    Raises:
        CorruptFileError: the file is not what the result next to it says.
        StorageError: the file does not exist.
    """
    data = location.read()
    file = location.parent.child(RESULT_FILE)
    if not file.is_file():
        return data
    if (stored := stored_values(file)) is None:
        raise CorruptFileError(f"{file.uri} is no result that a stage stored. Delete it.", uri=file.uri)
    recorded = {sha256 for name, sha256 in stored.made.items() if posixpath.basename(name) == SCORES}
    if recorded - {hashlib.sha256(data).hexdigest()}:
        raise CorruptFileError(
            f"{location.uri} is damaged: its SHA-256 differs from the one in {RESULT_FILE} beside it. Delete both, and make "
            "them again with 'offline outliers'.",
            uri=location.uri,
        )
    return data


def scores_of(uri: str, dataset: Dataset) -> Scores:
    """Read the scores of a version of a dataset.

    Arguments:
        uri: folder of the scores.

    Raises:
        ConfigError: there are none, or they are those of another version.
        CorruptFileError: they cannot be read.
    """
    location = Location.of(uri).child(SCORES)
    if not location.is_file():
        raise ConfigError(f"There is no {location.uri}: make it with 'offline outliers {dataset.location.uri} {uri}'.")
    data = read_scores(location)
    try:
        table = pq.read_table(io.BytesIO(data), page_checksum_verification=True)
        refuse_extension_types(table.schema, location.uri)
        scores = pl.DataFrame(table.select([columns.EPS_ID, *SCORE_COLUMNS]))
    except (pa.ArrowException, KeyError, OSError) as error:
        raise CorruptFileError(f"{location.uri} cannot be read: {error}. Make it again with 'offline outliers'.") from error
    if (table.schema.metadata or {}).get(_DATASET) != dataset.manifest.fingerprint.encode():
        raise ConfigError(
            f"{location.uri} has the scores of another dataset or version than {dataset.ref}: make them with "
            f"'offline outliers {dataset.location.uri} {uri} --version {dataset.manifest.version}'."
        )
    return Scores(scores, hashlib.sha256(data).hexdigest())
