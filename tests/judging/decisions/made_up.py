"""Results of decisions that were never made: one of each verdict, with all that a result can have."""

from __future__ import annotations

import math
from typing import Any

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.judging.decisions.result import Candidate, DecisionResult, Difference, GuardrailFinding, Verdict

SENTENCES: dict[Verdict, str] = {
    "promote": "Promote iql: its discounted return is 1.2 above that of what the log recorded (at least 0.6).",
    "test": "Test iql beside what runs today: the log is 91 % sure that iql is better than what the log recorded, not 95 %.",
    "collect": "Collect about 1,800 more episodes: iql may be better than what the log recorded, and 500 do not show it.",
    "keep": "Keep what the log recorded: no candidate is shown or likely to be better (the best, iql, by -0.1).",
    "refused": "This log cannot tell. What acted did the same in the same state. Record with exploration.",
}


def difference(value: float, width: float = 0.5, **values: Any) -> Difference:
    given: dict[str, Any] = {
        "value": value,
        "low": value - width,
        "high": value + width,
        "standard_error": width / 2,
        "at_least": value - width,
        "p_value": 0.02,
        "effective_episodes": 120.5,
        "carrying_episodes": 240.0,
        "largest_share": 0.02,
    }
    return Difference(**(given | values))


def guardrail(name: str, value: float, *, max_fall: float, passed: bool) -> GuardrailFinding:
    return GuardrailFinding(name=name, difference=difference(value, 0.2), max_fall=max_fall, passed=passed)


def candidate(name: str, **values: Any) -> Candidate:
    given: dict[str, Any] = {
        "checkpoint": f"runs/{name}/best",
        "fingerprint": "ab" * 8,
        "name": name,
        "selected": difference(0.9),
        "judged": None,
        "score": 0.75,
        "overlap": 0.0,
    }
    return Candidate(**(given | values))


def candidates() -> list[Candidate]:
    """The first is shown to be better, the second breaks a guardrail, the third means nothing, the last is no finalist."""
    return [
        candidate(
            "iql",
            judged=difference(1.2, 0.55),
            overlap=0.93,
            guardrails=[
                guardrail("comfort", 0.1, max_fall=0.2, passed=True),
                guardrail("cost", -0.05, max_fall=0.1, passed=False),
            ],
            estimates={"wis": 13.1, "fqe": 12.8, "wdr": 13.2},
            differs_where=["obs[1] < 0.2 and obs[3] ≥ 1.5: it does as the behaviour in 31 % (12 % of steps)"],
            unsupported_where=["obs[1] ≥ 0.9: the log has 44 % of what it does (6 % of steps)"],
            carried_by={f"{number:08x}": 0.05 / number for number in range(1, 11)},
        ),
        candidate(
            "cql/alpha=5",
            judged=difference(0.4, 0.8),
            overlap=0.85,
            guardrails=[
                guardrail("comfort", -0.6, max_fall=0.2, passed=False),
                guardrail("cost", 0.3, max_fall=0.1, passed=True),
            ],
        ),
        candidate(
            "td3_bc",
            judged=difference(2.0, math.inf, effective_episodes=3.2, carrying_episodes=2.1, largest_share=0.6),
            overlap=0.32,
            reasons=[
                "the behaviour would plausibly take 32 % of its actions, and 80 % are needed (min_overlap): record with a "
                "behaviour that is more like it",
                "its value has no bound on this log: record more episodes",
            ],
        ),
        candidate("bc", selected=difference(0.01, 0.1)),
    ]


def made_up(verdict: Verdict, **values: Any) -> DecisionResult:
    ref = DatasetRef(uri="runs/log", version=3, fingerprint="cd" * 8, episodes=1_000, steps=24_000, bytes=10_000)
    found = candidates()
    given: dict[str, Any] = {
        "uri": "runs/decision",
        "verdict": verdict,
        "sentence": SENTENCES[verdict],
        "checkpoint": found[0].checkpoint,
        "fingerprint": found[0].fingerprint,
        "against": "behaviour",
        "worth_testing": ["runs/iql/best", "runs/cql/alpha=5/best"] if verdict == "test" else [],
        "episodes_needed": 1_800 if verdict in ("test", "collect") else None,
        "recorded": 11.9,
        "candidates": found,
        "dataset": ref,
        "selecting": ref,
        "judging": ref,
        "behaviour": None,
        "risk": 0.05,
        "confidence": 0.95,
        "gamma": 0.99,
        "horizon": 24,
        "reasons": ["What acted did the same in the same state. Record with exploration."] if verdict == "refused" else [],
        "warnings": ["The returns of runs/log drift: 11.2 in its first third, 12.9 in its last."],
        "seconds": 41.5,
    }
    return DecisionResult(**(given | values))


CALIBRATED = {
    "behaviour": "runs/decision/behaviour/best",
    "calibration": [(0.04, 0.05, 4_000), (0.15, 0.13, 900), (0.35, 0.39, 300), (0.62, 0.6, 500), (0.95, 0.94, 5_000)],
    "calibration_error": 0.021,
}
"""Of a behaviour that was fitted."""
