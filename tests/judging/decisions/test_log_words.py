"""Rules and guardrails in the words of the log that was imported."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.errors import ConfigError
from offline_core.judging.decisions.config import Guardrail
from offline_core.judging.decisions.sides import paid
from offline_core.judging.estimation.contenders import contenders_of
from offline_core.runtime.config import parse


def log_of(folder: Path) -> Dataset:
    """Three offers: what was shown at which device, and what it earned."""
    shown = {
        "hour": [1, 2, 3],
        "device": ["phone", "tablet", "phone"],
        "item": ["hat", "hat", "shoe"],
        "earned": [0.0, 2.0, 5.0],
    }
    pl.DataFrame(shown).write_csv(folder / "log.csv")
    mapping = {"obs": ["hour", "device"], "actions": "item", "rewards": "earned"}
    encode = {"device": "auto", "item": {"form": "index"}}
    given = {"mapping": mapping, "columns": {"encode": encode}, "episodes": {"order": "single_step"}}
    made = import_data(parse(ImportConfig, given), source=str(folder / "log.csv"), output=str(folder / "log"))
    return open_dataset(made.dataset.uri)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("earned / hour", [0.0, 1.0, 5 / 3]),
        ("rewards + actions", [0.0, 2.0, 6.0]),
        ("case when item = 'hat' and device in ('phone') then 1 else 0 end", [1.0, 0.0, 0.0]),
    ],
)
def test_a_guardrail_names_what_the_log_names(expression: str, expected: list[float], tmp_path: Path) -> None:
    log = log_of(tmp_path)
    held = paid(log, Guardrail(name="a", expression=expression))
    hours = paid(log, Guardrail(name="hour", expression="hour"))
    found = dict(zip(hours[: len(expected)].tolist(), held[: len(expected)].tolist(), strict=True))
    assert [found[float(hour)] for hour in (1, 2, 3)] == pytest.approx(expected)


def test_a_guardrail_on_no_column_is_told_those_of_the_log(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"names the column 'earning'.* hour, device, item, earned\."):
        paid(log_of(tmp_path), Guardrail(name="a", expression="earning / hour"))


@pytest.mark.parametrize(
    "condition", ["device = 'phon'", "'phon' = device", "device not in ('tablet', 'phon')", "device <> 'phon'"]
)
def test_a_value_that_a_column_never_has_is_refused(condition: str, tmp_path: Path) -> None:
    """Else a typo decides nothing, and nobody is told."""
    log = log_of(tmp_path)
    said = "device is never 'phon' in this log; it is phone, tablet"
    [wrong] = contenders_of([f"rule:case when {condition} then 'hat' else 'shoe' end"], log)
    with pytest.raises(ConfigError, match=said):
        _ = wrong.policy
    with pytest.raises(ConfigError, match=said):
        paid(log, Guardrail(name="a", expression=f"case when {condition} then 1 else 0 end"))
    right = condition.replace("phon", "phone")
    assert contenders_of([f"rule:case when {right} then 'hat' else 'shoe' end"], log)[0].policy
