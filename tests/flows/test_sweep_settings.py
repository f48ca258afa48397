"""The flow of a sweep under a real Prefect server: the card is there, also where runs failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.stages import sweep
from offline_core.errors import SweepError
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.runtime.config import parse
from tests.flows.test_cli import run
from tests.flows.test_flows import artifacts_of, latest_run
from tests.judging.sweeps.test_sweep import DYING, SWEEP
from tests.learning.datasets import dataset_of
from tests.learning.test_train import balancing_episodes

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.filterwarnings("default")]


def config(**values: Any) -> SweepConfig:
    return parse(SweepConfig, SWEEP | {"grid": {"algorithm": ["bc", "marwil"]}} | values)


def sweep_card() -> str:
    (card,) = (str(card.data) for card in artifacts_of(latest_run().id) if card.key == "sweep-card")
    return card


def test_a_sweep_leaves_its_card_in_prefect_and_beside_the_runs(tmp_path: Path) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(4))
    result = sweep(dataset=data, output=str(tmp_path / "out"), config=config())
    card = sweep_card()
    for row in ("2 settings by last return", "| 1. algorithm=", "| 2. algorithm=", "| Runs | 4, 0 failed |", "base64"):
        assert row in card
    written = (tmp_path / "out" / "card.md").read_text()
    assert result.best.removeprefix(f"{tmp_path}/") in written.replace("\\", "") and (tmp_path / "out" / "card.png").is_file()
    again = sweep(dataset=data, output=str(tmp_path / "out"), config=config())
    assert again.reused and "| Reused | yes" in sweep_card()


@pytest.mark.slow
def test_a_sweep_of_which_runs_failed_fails_with_a_card(tmp_path: Path) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes())
    with pytest.raises(SweepError, match="2 of 4 runs failed"):
        sweep(dataset=data, output=str(tmp_path / "out"), config=config(grid={"algorithm": ["bc", DYING]}))
    state = latest_run().state
    assert state is not None and state.is_failed()
    card = sweep_card()
    assert "1 setting by" in card and "| Runs | 2, 2 failed |" in card and "nothing was divided" in card


@pytest.mark.slow
def test_the_verb_plans_and_prints_the_settings(tmp_path: Path) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(4))
    (tmp_path / "sweep.yaml").write_text(config().model_dump_json(exclude_unset=True))
    arguments = ("sweep", data, str(tmp_path / "out"), "-c", str(tmp_path / "sweep.yaml"), "-s", "grid.marwil.beta=[1, 2]")
    code, shown = run(*arguments, "--plan")
    assert code == 0 and "3 settings with 2 seeds: 6 of 6 runs are to be trained, 1 at once" in " ".join(shown.split())
    assert not (tmp_path / "out").exists()
    code, shown = run(*arguments)
    assert code == 0 and shown.count("marwil") >= 2 and "Compared: 3 settings by" in shown and "Best policy" in shown
    code, shown = run(*arguments, "-s", "grid.marwil.gamma=[2]", "-s", "seeds=0")
    assert code == 1 and "seeds" in shown and "has to be 1 or more" in shown
