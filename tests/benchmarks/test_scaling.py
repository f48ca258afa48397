"""The scaling benchmark without its runs: the grid, the page of measured lines, and how memory is measured."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cost_model import Setting, learning, loading
from benchmarks.data import write_recording
from benchmarks.scaling import grid, read
from benchmarks.scaling_page import Findings, page, report, seconds, thousands
from benchmarks.scaling_processes import measured
from benchmarks.scaling_run import config_of, ray_cpus, stages
from tests.benchmarks.test_cost_model import TRUE

SIZES = (100_000, 1_000_000)


def lines(cores: int = 2) -> list[dict[str, Any]]:
    """As if they had been measured where `TRUE` holds."""
    made: list[dict[str, Any]] = [{"name": "scaling.machine", "value": cores, "unit": "cores", "processor": "made up"}]
    for repeat in range(2):
        costs = {name: TRUE.coefficients[name] for name in ("read", "feed", "order")}
        made.append({"name": "scaling.stages", "value": 1.0, "unit": "s", **costs, "bytes_per_step": 26.0})
        made[-1] |= {"stored_bytes_per_step": 34.0, "gradient_bytes": 18_000.0}
        for s, curves in grid(cores, sizes=SIZES, base=1_000_000).items():
            learns = TRUE.streaming(s) if s.streamed else TRUE.seconds(learning(s))
            load = TRUE.seconds(loading(s))
            run = {"name": "scaling.run", "value": load + learns * (1 + 0.1 * repeat), "unit": "s", "load_seconds": load}
            run |= {"steps": s.learned, "bytes": 10**9 + repeat, "process_bytes": 10**8, "nodes_with_learners": s.nodes}
            made.append(run | {"curves": curves, "repeat": repeat, "setting": asdict(s)})
    return made


@pytest.mark.parametrize("cores", [1, 2, 16])
def test_the_grid_goes_by_the_cores_and_ray_has_cpus_for_each_setting(cores: int) -> None:
    settings = grid(cores, sizes=SIZES, base=1_000_000)
    for curve in ("prelearners", "learners"):
        counts = sorted(getattr(setting, curve) for setting, curves in settings.items() if curve in curves)
        assert counts[0] == 0 and counts[-1] == 2 * cores  # the last ones are simulated
    for setting in settings:
        config = config_of(setting, "bc")
        wanted = config.data.prelearners * config.data.cpus_per_prelearner
        wanted += config.compute.learners * config.compute.cpus_per_learner
        assert wanted + 1 <= ray_cpus(setting)  # a read task takes one


def test_a_page_can_be_made_again_from_its_lines(tmp_path: Path) -> None:
    left_out = {"name": "scaling.left_out", "value": 240.0, "unit": "s", "why": "it had not ended by then", "repeat": 1}
    left_out |= {"curves": ["learners"], "setting": asdict(Setting(1_000_000, learners=4))}
    report([*lines(), left_out], tmp_path / "2026-01-02-scaling")
    text = (tmp_path / "2026-01-02-scaling.md").read_text()
    assert "# Scaling, 2026-01-02" in text and "{" not in text
    assert "**Nobody has measured this.**" in text and "The fit found nothing" not in text
    assert "- 1 M steps, resident, 4 learners (simulated), turn 2: it had not ended by then (240 s)" in text
    assert (tmp_path / "2026-01-02-scaling.png").stat().st_size > 20_000
    assert page(Findings(read(str(tmp_path / "2026-01-02-scaling.jsonl"))), "2026-01-02-scaling") == text


def test_the_committed_page_is_that_of_its_lines() -> None:
    results = Path(__file__).parents[2] / "benchmarks" / "results"
    found = Findings(read(str(results / "2026-11-22-scaling.jsonl")))
    made = page(found, "2026-11-22-scaling").splitlines()
    committed = (results / "2026-11-22-scaling.md").read_text().splitlines()
    assert [line for line in made if "| group |" not in line] == [line for line in committed if "| group |" not in line]


def test_the_page_says_what_the_extrapolation_takes_for_free() -> None:
    alone = [line for line in lines() if line.get("setting", {}).get("learners", 0) < 2]
    assert "The fit found nothing for sync, round" in page(Findings(alone), "x")


def test_nodes_are_not_fitted() -> None:
    without = [line for line in lines() if not line.get("setting", {}).get("nodes")]
    assert Findings(without).model == Findings(lines()).model


def test_numbers_have_units_that_fit() -> None:
    assert [thousands(rate) for rate in (12.0, 1234.0, 2.5e6, 3e9)] == ["12", "1.23 k", "2.5 M", "3 G"]
    assert [seconds(value) for value in (2.0, 0.015, 3e-6, 4e-8, 0.0)] == ["2 s", "15 ms", "3 µs", "40 ns", "0 ns"]


def test_memory_is_that_of_all_processes_together() -> None:
    child = "import time; held = bytearray(60_000_000); time.sleep(1)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); print('done')"
    printed, peak = measured([sys.executable, "-c", parent], limit_seconds=60)
    assert printed == "done\n"
    assert peak.bytes > 60_000_000 > peak.process_bytes > 0


def test_a_run_beyond_its_limit_is_ended_and_one_that_fails_says_why() -> None:
    assert measured([sys.executable, "-c", "import time; time.sleep(60)"], limit_seconds=0.5)[0] is None
    with pytest.raises(RuntimeError, match="no such luck"):
        measured([sys.executable, "-c", "raise SystemExit('no such luck')"], limit_seconds=60)


@pytest.mark.usefixtures("ray_up")
def test_what_happens_to_a_window_is_timed(tmp_path: Path) -> None:
    write_recording(str(tmp_path / "data"), 2_000, format="episodes")
    found = stages(str(tmp_path / "data"))
    assert all(value > 0 for value in found.values())
    assert found["bytes_per_step"] == 4 * 4 + 8, "CartPole's observation and action"
