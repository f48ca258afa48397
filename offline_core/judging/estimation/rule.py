"""A rule in SQL: what to do, by the columns of what is seen before."""

from __future__ import annotations

from typing import Any, NoReturn

import gymnasium as gym
import numpy as np
import polars as pl

from offline_core.data.curation.observed import columns_of
from offline_core.data.episodes import columns
from offline_core.data.episodes.nested import Nested
from offline_core.data.inputs.frames import no_column
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.errors import ConfigError, first_line
from offline_core.runtime.sql import compared_texts, sql_expression

CLOSE = 1e-6
"""Share by which a number may differ from the one that an action stands for."""


class SqlRule:
    """An expression on what is seen: `case when hour < 7 then 0 else 2 end`.

    Its columns are those that observations were imported from, each in the log's own words (a category is its text, a bin the
    value that it stands for), and `obs`, of which `obs[1]` is the first number, or `"obs/position"` of a Dict. It gives an
    action as the log has it: a label where the actions of a Discrete space have some, otherwise its number.

    Arguments:
        text: in the dialect of `sql_expression`: of one row, not of several.
        name: in messages.
        made_of: what the observations of the log are made of.

    Raises:
        ConfigError: It cannot be understood, or the actions are more than one number.
    """

    def __init__(
        self,
        text: str,
        name: str,
        spaces: tuple[gym.Space[Any], gym.Space[Any]],
        made_of: InputColumns | None,
    ) -> None:
        _, action_space = spaces
        self._name, self._made_of = name, made_of
        if np.prod(action_space.shape or ()) != 1:
            self._refuse(f"gives one number, and the actions of the log are {action_space}: name a function (function:…)")
        self._expression = sql_expression(text)
        if never := never_met(text, made_of):
            self._refuse(never)
        self._labels = made_of.labels if made_of is not None and isinstance(action_space, gym.spaces.Discrete) else None
        self._start = int(getattr(action_space, "start", 0))

    def __call__(self, observations: Nested) -> np.ndarray:
        """(B,) actions as numbers, for observations (B, …)."""
        frame = pl.DataFrame(columns_of(observations, self._made_of))
        try:
            named = self._expression.meta.root_names()
            if missing := sorted({*named} - {*frame.columns}):
                self._refuse(self._told(missing, frame.columns))
            answers = frame.with_columns(self._expression.alias(ANSWER))[ANSWER]
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            self._refuse(f"cannot be computed: {first_line(error)}")
        if (nothing := answers.is_null()).any():
            row = frame.row(int(nothing.arg_true()[0]), named=True)
            self._refuse(f"gives nothing for { ({name: row[name] for name in named} or row) }: end it with else")
        return self._numbers(answers)

    def _told(self, missing: list[str], there: list[str]) -> str:
        """What is wrong with columns that are not seen before an action."""
        labels, action = self._labels or [], None if self._made_of is None else self._made_of.action
        if done := sorted({*missing} & {action, columns.ACTIONS}):
            return f"goes by {done[0]}, which is what was done: a rule goes by what is seen before, {', '.join(there)}"
        if meant := [name for name in missing if name in labels]:
            return f"names a column {meant[0]}, and there is none: write the action {meant[0]} in single quotes, '{meant[0]}'"
        return f"sees what is seen before an action. {no_column(missing, there)[:-1]}"

    def _numbers(self, answers: pl.Series) -> np.ndarray:
        is_text = answers.dtype == pl.String
        if not (is_text or answers.dtype.is_numeric() or answers.dtype == pl.Boolean):
            self._refuse(f"gives {answers.dtype}, which is no action")
        labels = self._labels
        if is_text and (labels is None or not isinstance(labels[0], str)):
            self._refuse(
                f"gives the text {answers[0]!r}, and the actions of the log are numbers: say which a text stands for, as case "
                f"when … = {answers[0]!r} then 0 else 1 end does"
            )
        if labels is None:
            return answers.cast(pl.Float64).to_numpy()
        if is_text:
            code_by_label = {label: code for code, label in enumerate(labels)}
            codes = answers.replace_strict(code_by_label, default=-1, return_dtype=pl.Int64).to_numpy()
        elif isinstance(labels[0], str):
            self._refuse(f"gives the number {answers[0]}, and the actions of the log are {', '.join(map(str, labels))}")
        else:
            numbers, label_values = answers.cast(pl.Float64).to_numpy(), np.asarray(labels, np.float64)
            codes = np.abs(numbers[:, None] - label_values).argmin(axis=1)
            codes = np.where(np.isclose(numbers, label_values[codes], rtol=CLOSE, atol=0), codes, -1)
        if (unknown := codes < 0).any():
            self._refuse(
                f"gives {answers[int(unknown.argmax())]!r}, and the actions of the log are {', '.join(map(str, labels))}"
            )
        return codes + self._start

    def _refuse(self, reason: str) -> NoReturn:
        raise ConfigError(f"The candidate {self._name} {reason}.")


def never_met(text: str, made_of: InputColumns | None) -> str:
    """What is wrong with an expression that compares a column with a text that it never is; empty: nothing."""
    if made_of is None:
        return ""
    encoded = made_of.steps.encode.items()
    texts = {name: encoding.known for name, encoding in encoded if encoding.is_text and not encoding.other}
    if made_of.action is not None and made_of.labels is not None and isinstance(made_of.labels[0], str):
        texts[made_of.action] = made_of.labels
    for name, value in compared_texts(text):
        if name in texts and value not in texts[name]:
            possible = ", ".join(map(str, texts[name]))
            return f"asks for {name} {value!r}, and {name} is never {value!r} in this log; it is {possible}"
    return ""


ANSWER = "what the rule gives"
