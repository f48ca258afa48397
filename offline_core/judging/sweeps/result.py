"""The result of a sweep."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.runtime.result import PolicyResult

if TYPE_CHECKING:
    import polars as pl


class _Part(BaseModel):
    # Returns may be infinite, which JSON's null would lose.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class SweptRun(_Part):
    """One training."""

    seed: int
    checkpoint: str = Field(description="The policy that was scored.")
    score: float
    curve: list[tuple[int, float]] = Field(description="(updates, mean return) of each evaluation, or the held-out loss.")
    updates: int
    seconds: float = Field(description="Of the training.")


class SweptSetting(_Part):
    """The runs of one setting, and what their scores say."""

    name: str
    parameters: dict[str, Any] = Field(description="Values that the sweep set, by path.")
    algorithm: str
    folder: str = Field(description="Where its runs are, one folder a seed.")
    runs: list[SweptRun] = Field(description="In the order of the seeds, without those that failed.")
    mean: float
    interquartile_mean: float = Field(description="Without a quarter of the runs at either end.")
    low: float | None = Field(description="Lower end of the interquartile mean's interval; None: of a single run.")
    high: float | None = Field(description="Upper end.")
    curve: list[tuple[int, float, float, float]] = Field(description="(updates, mean, low, high) over the runs' curves.")

    @property
    def scores(self) -> list[float]:
        """Of each run."""
        return [run.score for run in self.runs]


class FailedRun(_Part):
    """One training that ended in an error."""

    setting: str
    seed: int
    error: str = Field(description="Class and message.")
    may_pass: bool = Field(description="The same call may succeed later, with nothing changed.")

    def __str__(self) -> str:
        return f"{self.setting}, seed {self.seed}: {self.error}"


class SweepResult(PolicyResult):
    """What the settings of a sweep came to."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    checkpoint: str = Field(description="The best policy of the best setting.")
    dataset: DatasetRef
    score: str = Field(description="What the runs are compared by.")
    settings: list[SweptSetting] = Field(description="The best first, by interquartile mean.")
    expected_best: dict[str, list[float]] = Field(
        description="By algorithm: the expected best score of 1, 2, 3 … policies tried, out of all its settings and seeds."
    )
    failures: list[FailedRun]
    confidence: float
    seconds: float

    @property
    def sign(self) -> int:
        """1 if a higher score is better, -1 if a lower one is."""
        return -1 if self.score == "held_out_loss" else 1

    @property
    def best(self) -> str:
        """URI of the checkpoint to use."""
        return self.checkpoint

    @property
    def checkpoints(self) -> list[str]:
        """URI of the best policy of each setting, the best setting first."""
        return [max(setting.runs, key=lambda run: self.sign * run.score).checkpoint for setting in self.settings]

    @property
    def parameters(self) -> dict[str, Any]:
        """What the best setting set, by path."""
        return self.settings[0].parameters

    def table(self) -> pl.DataFrame:
        """One row a setting, the best first: its parameters, runs, mean, interquartile mean, interval and folder."""
        import polars as pl

        paths = dict.fromkeys(path for setting in self.settings for path in setting.parameters)
        parameters = {path: _column([setting.parameters.get(path) for setting in self.settings]) for path in paths}
        numbers = {
            "runs": [len(setting.runs) for setting in self.settings],
            **{
                name: [getattr(setting, name) for setting in self.settings]
                for name in ("mean", "interquartile_mean", "low", "high", "folder")
            },
        }
        return pl.DataFrame(parameters | numbers)

    def __repr__(self) -> str:
        import polars as pl

        with pl.Config(tbl_cols=-1, tbl_width_chars=160, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
            return f"{type(self).__name__}: {len(self.settings)} settings by {self.score}\n{self.table().drop('folder')}"

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return str(self.table()._repr_html_())


def _column(values: list[Any]) -> list[Any]:
    """Values of one type, or their texts."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int} or kinds <= {int, float} or kinds <= {str} or kinds <= {bool}:
        return [float(value) for value in values] if kinds == {int, float} and None not in values else values
    return [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
