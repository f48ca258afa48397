"""Rules of the user's own: beside the others, and their errors named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.statistics import ColumnStatistics
from offline_core.data.episodes.codecs import Format
from offline_core.data.quality.check import check, default_rules, enforce
from offline_core.data.quality.config import QualityConfig
from offline_core.data.quality.result import Finding
from offline_core.data.quality.rule import Tally
from offline_core.data.quality.steps import StepBatch
from offline_core.errors import ConfigError, DataError, OfflineError, QualityError, SchemaError
from tests.data.datasets.factories import FORMATS, write_dataset
from tests.data.quality.datasets import broken, clean


class Small:
    """Steps that earn less than a number."""

    def __init__(self, *, limit: float = 0.5, name: str = "small") -> None:
        self.limit, self.name, self.tally = limit, name, Tally()

    def look(self, steps: StepBatch) -> None:
        self.tally.steps(steps, steps.columns["rewards"] < self.limit)

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        assert "obs" in statistics
        return self.tally.finding(self.name, "warn", "steps earn little", "Earn more.")


class Faulty(Small):
    """Fails where it is told to."""

    def __init__(self, *, at: str) -> None:
        super().__init__()
        self.at = at

    def look(self, steps: StepBatch) -> None:
        if self.at == "look":
            raise KeyError("position")
        if self.at == "writes":
            steps.columns["obs"] -= 1
        if self.at == "ours":
            raise SchemaError("Not of this kind.")

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Any:
        if self.at == "finding":
            raise ZeroDivisionError
        return "all is well"


def a_function(steps: StepBatch) -> None:
    """No rule: it cannot say what it found."""


def own(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"path": f"{__name__}:{name}", "arguments": arguments}


def config(*rules: dict[str, Any], **more: Any) -> QualityConfig:
    return QualityConfig.model_validate({"rules": rules, **more})


@pytest.mark.parametrize("format", FORMATS)
def test_its_findings_are_like_those_of_others(tmp_path: Path, format: Format) -> None:
    some = clean()
    write_dataset(tmp_path, some, format, batch=7)
    settings = config(own("Small", limit=0.25), own("Small", limit=0.75, name="smaller"), stop_on="warn")
    report = check(settings, dataset=str(tmp_path))
    assert len(report.findings) == len(default_rules(settings)) + 2
    for name, limit in (("small", 0.25), ("smaller", 0.75)):
        places = [(one.eps_id, int(t)) for one in some for t in np.flatnonzero(one.rewards < limit)]
        finding = broken(report)[name]
        assert (finding.verdict, finding.count, finding.of) == ("warn", len(places), sum(map(len, some)))
        assert [(example.eps_id, example.t) for example in finding.examples] == places[:5]
    assert report.verdict == "warn"
    with pytest.raises(QualityError, match=r"small \(warn\): .* steps earn little\. First: episode .* Earn more"):
        enforce(report, settings)


def test_the_same_check_is_found_and_another_argument_is_another_check(tmp_path: Path) -> None:
    write_dataset(tmp_path, clean())

    def reused(limit: float) -> bool:
        return check(config(own("Small", limit=limit)), dataset=str(tmp_path)).reused

    assert [reused(0.25), reused(0.25), reused(0.5)] == [False, True, False]


@pytest.mark.parametrize(
    ("rules", "error", "message"),
    [
        ([own("Faulty", at="look")], DataError, r"The quality rule .*:Faulty failed on /.*: KeyError\('position'\)"),
        ([own("Faulty", at="finding")], DataError, "The quality rule .*:Faulty failed on /.*: ZeroDivisionError"),
        ([own("Faulty", at="writes")], DataError, "Faulty failed on .*read-only"),
        ([own("Faulty", at="ours")], SchemaError, "^Not of this kind.$"),
        ([own("Faulty", at="nowhere")], ConfigError, "finding.* of the quality rule .*:Faulty gives 'all is well'"),
        ([own("Small"), own("Small", limit=1)], ConfigError, "Small calls its finding 'small', as another rule does"),
        ([own("Small", name="step_order")], ConfigError, "Small calls its finding 'step_order', as another rule does"),
        ([own("a_function")], ConfigError, r"a_function has to be a class with look\(steps\) and finding\(statistics\)"),
        ([own("Small", limits=1)], ConfigError, "The quality rule .*:Small cannot be made with limits"),
        ([own("Missing")], ConfigError, "The quality rule '.*:Missing' cannot be imported"),
    ],
)
def test_errors_name_the_rule(tmp_path: Path, rules: list[dict[str, Any]], error: type[OfflineError], message: str) -> None:
    write_dataset(tmp_path, clean())
    with pytest.raises(error, match=message):
        check(config(*rules), dataset=str(tmp_path))
    assert not (tmp_path / "_checks").exists()


def test_a_check_without_such_rules_is_the_operation_it_was() -> None:
    assert "rules" not in Operation.of("check", QualityConfig()).config
