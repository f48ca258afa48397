"""Decisions between rules and functions, beside a checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import offline_core as offline
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.errors import ConfigError, PromotionError
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.decide import decide
from offline_core.judging.decisions.result import ADOPT, DecisionResult
from offline_core.judging.estimation.contenders import contenders_of
from offline_core.keeping.promotion.config import PromotionConfig
from offline_core.keeping.promotion.promote import promote
from offline_core.policies.checkpoint import save_policy
from offline_core.runtime.config import parse
from tests.judging.decisions.made_up import made_up
from tests.judging.decisions.test_decide import FQE
from tests.judging.estimation.chains import GAMMA, SPACES, TARGET, played, policy_of, recorded
from tests.learning.datasets import dataset_of

BEST = "rule:case when obs = 1 then 1 else 0 end"
WORST = "rule:case when obs = 1 then 0 else 1 end"
FUNCTION = "function:tests.judging.estimation.asked:target"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = recorded(played(600, seed=8))
    return dataset_of(tmp_path_factory.mktemp("candidates") / "log", made, spaces=SPACES, environment=None)


def decided(log: str, *candidates: str, output: Path, **config: object) -> DecisionResult:
    values = {"estimate": {"gamma": GAMMA, "resamples": 200, "fqe": FQE}, "examine_updates": 0} | config
    return decide(parse(DecisionConfig, values), dataset=log, candidates=[*candidates], output=str(output))


def test_rules_and_functions_are_ranked_beside_checkpoints(log: str, tmp_path: Path) -> None:
    save_policy(policy_of(TARGET), str(tmp_path / "target"), operation=Operation(name="test"))
    found = decided(log, WORST, str(tmp_path / "target"), BEST, output=tmp_path / "out", min_overlap=0.1)
    assert [each.name for each in found.candidates] == [BEST, f"{tmp_path.name}/target", WORST]
    assert found.candidates[0].score > 0 > found.candidates[2].score
    assert found.first.checkpoint == BEST and not found.is_checkpoint
    assert (
        [each for each in found.warnings if "was made from is unknown" in each]
        == [each for each in found.warnings if each.startswith(f"What {BEST} ")]
        != []
    ), "of the first alone"
    assert found.card().about == (log, 1)
    differing = found.first.differs_at
    assert len({each.episode for each in differing}) == 5 and {each.choices[BEST].chance for each in differing} == {0.0}
    assert {each.done for each in differing if each.seen["obs"] == "1"} <= {"0"}
    assert decided(log, WORST, str(tmp_path / "target"), BEST, output=tmp_path / "out", min_overlap=0.1).reused
    with pytest.raises(PromotionError, match=f"Nothing is moved: the decision in .* is for {BEST}. Let it act where"):
        promote(PromotionConfig(), registry=str(tmp_path / "registry/it"), source=str(tmp_path / "out"))


def test_a_registry_that_is_not_there_is_told_before_anything_is_fitted(
    log: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise ConfigError("it would be fitted now")

    monkeypatch.setattr("offline_core.judging.decisions.work.decided", stop)
    save_policy(policy_of(TARGET), str(tmp_path / "target"), operation=Operation(name="test"))
    hvac = str(tmp_path / "registry" / "hvac")
    with pytest.raises(ConfigError, match="fitted now"):
        decided(log, BEST, output=tmp_path / "out", registry=hvac)
    assert f"There is no policy {hvac}: {tmp_path}/registry is no registry yet. A promotion by this decision" in caplog.text
    promote(PromotionConfig(override="the first"), registry=hvac, source=str(tmp_path / "target"))
    caplog.clear()
    with pytest.raises(ConfigError, match="fitted now"):
        decided(log, BEST, output=tmp_path / "out", registry=hvac)
    assert "There is no policy" not in caplog.text
    with pytest.raises(ConfigError, match="fitted now"):
        decided(log, BEST, output=tmp_path / "out", registry=f"{tmp_path}/registry/hvca")
    assert f"the registry {tmp_path}/registry has hvac. A promotion" in caplog.text
    with pytest.raises(ConfigError, match=f"{tmp_path}/registry is a registry with the names hvac, and no name itself"):
        decided(log, BEST, output=tmp_path / "out", registry=f"{tmp_path}/registry")


def test_a_rule_may_be_what_runs_today(log: str, tmp_path: Path) -> None:
    found = decided(log, FUNCTION, output=tmp_path, against=WORST, min_overlap=0.1)
    assert found.against == WORST and found.candidates[0].judged is not None and found.candidates[0].judged.value > 0


def test_a_rule_that_is_shown_to_be_better_is_adopted() -> None:
    found = made_up("promote", checkpoint=BEST)
    assert found.card().advice == ADOPT and made_up("promote").card().advice != ADOPT


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([BEST, WORST, f"{BEST} "], "named twice"),
        ([f"rule:{number}" for number in range(1_000)], "1,000 candidates are more than the 100"),
        ([], "There is no candidate"),
    ],
)
def test_candidates_that_cannot_be_decided_between_are_refused(candidates: list[str], message: str, log: str) -> None:
    with pytest.raises(ConfigError, match=message):
        contenders_of(candidates, open_dataset(log))


def test_what_fails_late_in_the_log_is_refused_before_anything_is_fitted(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "offline_core.judging.decisions.sides.model_of_behaviour", lambda *_, **__: pytest.fail("it was fitted")
    )
    first = open_dataset(log).first_episode()
    assert first is not None
    last = sorted({0, 1, 2} - {*first.observations[:-1].tolist()})[-1]  # a state that the first episode does not have
    with pytest.raises(ConfigError, match=r"answers 7.0 to an observation"):
        decided(log, f"rule:case when obs = {last} then 7 else 0 end", output=tmp_path, examine_updates=100)


def test_rules_of_long_texts_keep_different_names(log: str) -> None:
    long = "rule:case when obs = 1 then 1 when obs = 2 then 1 when obs = 0 then 0 else {} end"
    names = [each.name for each in contenders_of([long.format(0), long.format(1), "rule:1"], open_dataset(log))]
    assert len({*names}) == 3 and names[2] == "rule:1"


def clicks(folder: Path, **columns: np.ndarray) -> str:
    """An imported log of one step an episode, whose observations are these columns and whose action is an item."""
    rng = np.random.default_rng(0)
    items = rng.choice(["bags", "hats"], 40)
    frame = pl.DataFrame(columns | {"item": items, "p": np.full(40, 0.5), "click": rng.random(40).round()})
    folder.mkdir()
    frame.write_parquet(folder / "log.parquet")
    mapping = {"obs": [*columns], "actions": "item", "rewards": "click", "action_prob": "p"}
    config = {"mapping": mapping, "episodes": {"order": "single_step"}}
    return offline.import_data(str(folder / "log.parquet"), output=folder / "data", **config).ref.uri


def test_a_checkpoint_of_other_columns_is_refused(tmp_path: Path) -> None:
    """Though its spaces are those of the log; and a log with a column called item is a log."""
    hour, age = np.arange(40) % 24, np.arange(40) % 7
    own, swapped = clicks(tmp_path / "own", hour=hour, age=age), clicks(tmp_path / "swapped", age=age, hour=hour)
    trained = offline.train(own, output=tmp_path / "policy", algorithm="bc", optimizer={"max_updates": 1}).checkpoint
    message = r"learned from other columns or labels than .*: obs is \['hour', 'age'\] and \['age', 'hour'\]"
    with pytest.raises(ConfigError, match=message):
        decided(swapped, trained, output=tmp_path / "out")
    assert decided(own, trained, output=tmp_path / "out").verdict == "refused", "it has learned from it"


def test_a_function_that_draws_is_refused(log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "drawing.py").write_text(
        "import numpy as np\n\n\ndef act(observations):\n    return np.random.default_rng().integers(0, 2, len(observations))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"function:drawing:act answers otherwise if it is asked the same again"):
        decided(log, "function:drawing:act", output=tmp_path / "out")
