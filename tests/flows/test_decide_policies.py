"""The flow of decisions under a real Prefect server: the verb, what it prints, its card."""

from __future__ import annotations

from pathlib import Path

import pytest

import offline_core as offline
from flows.stages import decide
from offline_core.errors import CheckpointError
from tests.flows.test_cli import run
from tests.flows.test_data_flows import card_of
from tests.judging.estimation.chains import BEHAVIOUR, TARGET, policy_of
from tests.judging.estimation.test_estimate import chain, saved

QUICK = "estimate={gamma: 0.9, resamples: 100, fqe: {updates: 40, learning_rate: 0.02, network: {hidden_sizes: [8]}}}"
GUARDRAIL = "guardrails=[{name: early, expression: 'case when t < 3 then rewards else 0 end', max_fall: 1}]"


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
@pytest.mark.filterwarnings("default")
def test_the_verb_says_which_policy_may_replace_what_the_log_recorded(tmp_path: Path) -> None:
    data = chain(tmp_path, 1_000)
    better = saved(policy_of((TARGET + BEHAVIOUR) / 2), tmp_path / "better")
    worse = saved(policy_of(1 - TARGET), tmp_path / "worse")
    arguments = ("decide", data, worse, better, "-o", str(tmp_path / "decision"), "-s", QUICK, "-s", GUARDRAIL, "--server")
    code, shown = run(*arguments)
    told = shown[shown.index("Promote better") :]
    assert code == 0 and len(told.splitlines()) <= 15 and f"{tmp_path.name}/decision/card.html" in told
    _, whole = run(*arguments, "-v")
    assert whole.index("Promote better") < whole.index("In plain words") < whole.index("holds: early")
    card = card_of(decide, "decide-card")
    assert "promote" in card and "Promote better" in card and "holds: early" in card and "base64" in card
    assert {"card.md", "card.html", "card.png"} < {path.name for path in (tmp_path / "decision").iterdir()}
    assert "<h2>Lineage</h2>" in (tmp_path / "decision" / "card.html").read_text()

    code, again = run(*arguments)
    assert code == 0 and "Promote better" in again
    assert "| Reused | yes" in card_of(decide, "decide-card")


def test_a_policy_that_is_missing_is_named(tmp_path: Path) -> None:
    data, there, output = chain(tmp_path, 2), saved(policy_of(TARGET), tmp_path / "policy"), tmp_path / "decision"
    with pytest.raises(CheckpointError, match=r"There is no policy at .*/gone"):
        offline.decide(data, [there, tmp_path / "gone"], output=output)
    with pytest.raises(CheckpointError, match=r"There is no policy at .*/champion"):
        offline.decide(data, [there], output=output, against="champion")


@pytest.mark.parametrize("given", ["a path", ["a path"]])
def test_one_candidate_or_several_may_be_given(given, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CheckpointError, match=r"There is no policy at .*/a path"):
        offline.decide(chain(tmp_path, 2), given, output=tmp_path / "decision")
