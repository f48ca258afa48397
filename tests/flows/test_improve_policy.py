"""From new logs to a better policy, under a real Prefect server: promoted once, refused once, and approved by a person."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from prefect import resume_flow_run
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import StateType

from flows import approval
from flows.improve_policy import improve_policy
from offline_core.errors import ConfigError
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.policies.manifest import find_policy
from offline_core.policies.registry import entry_of, read_history
from offline_core.runtime.config import parse
from tests.flows.test_flows import artifacts_of, latest_run
from tests.judging.estimation.chains import SPACES, played, recorded
from tests.learning.datasets import dataset_of
from tests.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("default")

FQE = {"updates": 60, "learning_rate": 0.02, "network": {"hidden_sizes": [8]}}
ESTIMATE = {"gamma": 0.9, "fqe": FQE}
DECISION = parse(DecisionConfig, {"estimate": ESTIMATE | {"methods": ["wdr"], "resamples": 100}, "finalists": 1})
SWEEP = parse(
    SweepConfig,
    {
        "training": {
            "network": {"hidden_sizes": [16]},
            "optimizer": {"batch_size": 256, "max_epochs": 40, "learning_rate": 0.01},
            "marwil": {"gamma": 0.9},
        },
        "grid": {"algorithm": ["bc", "marwil"], "marwil.beta": [3.0]},
        "seeds": 1,
        "parallel": 1,
        "resamples": 10,
        "estimate": ESTIMATE,
    },
)


def log_of(folder: Path, seed: int) -> str:
    return dataset_of(folder, recorded(played(800, seed=seed)), spaces=SPACES, environment=None)


def improve(tmp_path: Path, source: str, **values: Any) -> Any:
    given = {"registry": f"{tmp_path}/registry/chain", "root": f"{tmp_path}/root", "sweep": SWEEP, "decision": DECISION}
    return improve_policy(source=source, **(given | values))


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_the_first_log_makes_a_champion_and_the_second_is_held_against_it(tmp_path: Path) -> None:
    first = improve(tmp_path, log_of(tmp_path / "monday", 1))
    assert [stage.name for stage in first.stages] == [
        "check", "split", "prune", "hold out to compare", "sweep", "decide", "promote",
    ]  # fmt: skip
    assert first.decision.verdict == "promote" and first.decision.against == "behaviour"
    assert first.promotion is not None and first.approved_by is None
    address = f"{tmp_path}/registry/chain@champion"
    assert find_policy(address)[1].fingerprint == first.decision.fingerprint
    card = {card.key: str(card.data) for card in artifacts_of(latest_run().id)}["improve-policy-card"]
    assert card.splitlines()[2].startswith(("**[ok] Promote.** Promote", "**[!] Promote, with ")) and "| Moved | yes |" in card

    clones = SWEEP.model_copy(update={"grid": {"algorithm": ["bc"]}})  # of the behaviour, which the champion is better than
    second = improve(tmp_path, log_of(tmp_path / "tuesday", 2), sweep=clones)
    assert second.decision.verdict != "promote" and second.promotion is None
    assert find_policy(second.decision.against)[1].fingerprint == first.decision.fingerprint
    assert len(read_history(entry_of(f"{tmp_path}/registry/chain")).moves) == 1
    written = (tmp_path / "root" / "card.md").read_text()
    assert (
        f" {second.decision.verdict.capitalize()}.** " in written.replace(", with a warning", "")
        and "| Moved | no |" in written
    )
    assert len([*(tmp_path / "root" / "decisions").iterdir()]) == 2, "the evidence of a promotion stays"


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
@pytest.mark.parametrize("approve", [True, False])
def test_a_person_approves_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approve: bool) -> None:
    monkeypatch.setattr(approval, "POLL_SECONDS", 0.2)
    answered: list[str] = []

    def answer() -> None:
        paused = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.PAUSED])))
        with get_client(sync_client=True) as client:
            [run, *_] = wait_until(lambda: client.read_flow_runs(flow_run_filter=paused), what="a run that asks")
            resume_flow_run(run.id, run_input={"approve": approve, "by": "Ada"})
            answered.append(run.name)

    person = threading.Thread(target=answer)
    person.start()
    result = improve(tmp_path, log_of(tmp_path / "log", 1), approval=True)
    person.join()
    assert answered and result.decision.verdict == "promote"
    moves = read_history(entry_of(f"{tmp_path}/registry/chain")).moves
    assert [move.moved_by for move in moves] == (["Ada"] if approve else [])
    assert result.approved_by == ("Ada" if approve else None) and (result.promotion is not None) == approve


def test_approval_needs_a_server_that_stays_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.local_flow.needs_temporary_server", lambda: True)
    with pytest.raises(ConfigError, match="set PREFECT_API_URL"):
        improve(tmp_path, str(tmp_path / "log"), approval=True)
    assert not (tmp_path / "root").exists()
