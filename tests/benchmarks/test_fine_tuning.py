"""Which steps the benchmark of fine-tuning counts, without the hours that they take."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import fine_tuning

CURVE = [(0, -900.0), (500, -950.0), (1_000, -180.0)]


@pytest.mark.parametrize(("level", "steps"), [(-900.0, 0), (-899.0, 1_000), (-180.0, 1_000), (-179.0, None)])
def test_steps_are_those_of_the_first_evaluation_with_a_return(level: float, steps: int | None) -> None:
    assert fine_tuning.steps_to(CURVE, level) == steps


def printed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *from_nothing: list[Any],
    curve: list[tuple[int, float]] = CURVE,
) -> list[Any]:
    """What the benchmark prints with these curves of SAC from nothing, for seeds 0, 1, …, and this one of fine-tuning."""
    best = max(found for _, found in curve)
    tuned = SimpleNamespace(
        curve=curve, mean_return=best, start_return=curve[0][1], env_steps=curve[-1][0], best="best", rollbacks=1
    )

    def train_expert(*_: Any, seed: int, **settings: Any) -> SimpleNamespace:
        assert "evaluation" not in settings, "it plays all steps, so that its runs serve every algorithm"
        return SimpleNamespace(curve=from_nothing[seed], mean_return=max(found for _, found in from_nothing[seed]))

    stages = SimpleNamespace(
        train=lambda *_, **__: SimpleNamespace(last="last"),
        fine_tune=lambda *_, **__: tuned,
        train_expert=train_expert,
        evaluate=lambda policy, **_: SimpleNamespace(mean_return={"last": -910.0, "best": -200.0}[policy]),
    )
    monkeypatch.setattr(fine_tuning, "offline", stages)
    monkeypatch.setattr(
        sys, "argv", ["fine_tuning", str(Path("folder")), "--data", "medium", "--seeds", str(len(from_nothing))]
    )
    monkeypatch.setattr(fine_tuning.logging, "disable", lambda _: None)  # for the whole process
    fine_tuning.main()
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_steps_of_sac_from_nothing_are_those_to_the_return_that_fine_tuning_ended_with(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, steps, gain = printed(monkeypatch, capsys, [(3_000, -200.0), (4_000, -170.0)])
    assert (seed["steps"], seed["value"], seed["at_most"], seed["fresh"]) == ([1_000, 4_000], 0.25, False, [-910, -200])
    assert (steps["value"], steps["at_most"], gain["value"], gain["above_start"]) == (0.25, False, 710.0, "1 of 1")


def test_a_return_that_sac_never_has_counts_all_that_it_played(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, never, steps, _ = printed(monkeypatch, capsys, [(4_000, -170.0)], [(3_000, -200.0), (8_000, -300.0)])
    assert (never["steps"], never["at_most"]) == ([1_000, 8_000], True)
    assert (steps["at_most"], steps["worst"]) == (True, 0.25)


def test_fine_tuning_that_gains_nothing_counts_all_that_it_played(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    curve = [(0, -900.0), (500, -900.0), (1_000, -950.0)]
    seed, *_ = printed(monkeypatch, capsys, [(2_000, -800.0)], curve=curve)
    assert seed["steps"] == [1_000, 2_000]
