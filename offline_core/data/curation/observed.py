"""What is seen at steps, as the columns that an import made observations from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.episodes import Episode, EpisodeBatch, columns, nested
from offline_core.data.episodes.batch import step_column
from offline_core.data.episodes.nested import Nested
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.number_names import number_names

UNKNOWN = "(no known category)"
"""The text of what an encoding's `other` stands for: no label, so that a real one called other is another value."""


def as_series(values: np.ndarray) -> pl.Series:
    """Numbers with axes as lists, in C order: only those take subscripts."""
    if values.dtype.kind == "U":
        return pl.Series(values.tolist())
    if values.ndim == 1:
        return pl.Series(np.ascontiguousarray(values))
    return pl.Series(np.ascontiguousarray(values).reshape(len(values), -1)).arr.to_list()


def step_words(episodes: Sequence[Episode], dataset: Dataset, *, action: str | None = None) -> dict[str, pl.Series]:
    """What is seen and done at the steps, by the names and in the values of the log that was imported.

    Arguments:
        action: what the actions are called there; None: as the import that made choices of them says.
    """
    made_of, space = dataset.manifest.input_columns, dataset.spaces[1]
    series = {**columns_of(step_column(episodes, columns.OBS), made_of)}
    name = action if made_of is None or made_of.action is None else made_of.action
    actions = step_column(episodes, columns.ACTIONS)
    if name and isinstance(actions, np.ndarray):
        labels = None if made_of is None else made_of.labels
        start = int(getattr(space, "start", 0))
        series[name] = as_series(actions) if labels is None else pl.Series(np.asarray(labels)[actions - start].tolist())
    return series


def columns_of(observations: Nested, made_of: InputColumns | None) -> Mapping[str, pl.Series]:
    """Return the observations at B steps as columns: `obs` or its parts by path, and the columns an import made it from."""
    flat = nested.flatten(observations, columns.OBS)
    series_by_name = {path: as_series(leaf) for path, leaf in flat.items()}
    if made_of is None or columns.OBS not in flat:
        return series_by_name
    numbers = flat[columns.OBS].reshape(len(flat[columns.OBS]), -1)
    if number_names(columns.OBS, numbers.shape[1], made_of) == number_names(columns.OBS, numbers.shape[1]):
        return series_by_name  # what each number is called is not known
    if len(made_of.obs) == 1 < numbers.shape[1] and made_of.obs[0] not in made_of.steps.encode:  # lists
        return series_by_name | {made_of.obs[0]: series_by_name[columns.OBS]}
    start = 0
    for name in made_of.obs:
        encoding, bins = made_of.steps.encode.get(name), made_of.steps.bins.get(name)
        size = encoding.size if encoding is not None and encoding.form == "one_hot" else 1
        own, start = numbers[:, start : start + size], start + size
        if encoding is not None:
            codes = own.argmax(axis=1) if encoding.form == "one_hot" else own[:, 0].astype(np.int64)
            series_by_name[name] = pl.Series([*encoding.known, None], strict=False).gather(
                np.minimum(codes, len(encoding.known))
            )
        elif bins is not None:
            series_by_name[name] = pl.Series(np.asarray(bins.values)[own[:, 0].astype(np.int64)])
        else:
            series_by_name[name] = pl.Series(np.ascontiguousarray(own[:, 0]))
    return series_by_name


def observed_constants(source: Dataset, name: str) -> list[str | None]:
    """Return for each episode the value that an observed column has at all of its steps; None if it has several or none."""
    made_of = source.manifest.input_columns
    constants: list[str | None] = []
    for group in source.row_groups():
        episodes = group.episodes()
        some = [number for number, episode in enumerate(episodes) if len(episode)]
        told: list[str | None] = [None] * len(episodes)
        if some:
            batch = EpisodeBatch.of([episodes[number] for number in some], [columns.OBS])
            series = columns_of(batch.columns[columns.OBS], made_of).get(name)
            if series is not None and not series.dtype.is_nested():
                starts = batch.offsets[:-1]
                codes = series.rank("dense").fill_null(0).to_numpy()
                is_constant = np.logical_and.reduceat(codes == np.repeat(codes[starts], np.diff(batch.offsets)), starts)
                values = series.gather(starts).to_list()
                for number, value, one in zip(some, values, is_constant.tolist(), strict=True):
                    told[number] = _text(value, series.dtype) if one else None
        constants += told
    return constants


def _text(value: object, dtype: pl.DataType) -> str:
    """The shortest text that no other value of the type has."""
    if value is None:
        return UNKNOWN
    if not isinstance(value, float):
        return str(value)
    return np.format_float_positional(np.float32(value) if dtype == pl.Float32 else np.float64(value), trim="-")
