"""The flows of the registry under a real Prefect server, and its verbs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.stages import promote, rollback
from offline_core.errors import PromotionError
from offline_core.keeping.promotion.config import PromotionConfig, RollbackConfig
from tests.flows.test_cli import run
from tests.flows.test_data_flows import card_of
from tests.keeping.promotion.decisions import decision_at, policy_at

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.filterwarnings("default")]


@pytest.mark.slow
def test_a_promotion_and_a_rollback_leave_cards_in_prefect_and_beside_the_history(tmp_path: Path) -> None:
    registry, policy = str(tmp_path / "registry" / "hvac"), policy_at(tmp_path / "policy", 1)
    promote(registry=registry, source=decision_at(tmp_path / "decision", policy))
    card = card_of(promote, "promote-card")
    assert "is better. |" in card and "promote, against behaviour |" in card and "| Named before | nothing |" in card
    stale = decision_at(tmp_path / "stale", policy_at(tmp_path / "next", 2))
    with pytest.raises(PromotionError, match="compared with what the log recorded"):
        promote(registry=registry, source=stale)
    promote(registry=registry, source=stale, config=PromotionConfig(override="as we know better"))
    rollback(registry=registry, config=RollbackConfig(reason="we did not"))
    card = card_of(rollback, "rollback-card")
    assert "# Rollback" in card and "back to move 1: we did not |" in card
    history = tmp_path / "registry" / "hvac" / "history"
    names = [path.name for path in sorted(history.iterdir())]
    assert names == [*(f"00000{number}.{kind}" for number in (1, 2, 3) for kind in ("html", "json", "md")), "last-000003"]


@pytest.mark.slow
def test_the_verbs_move_an_alias_and_show_why(tmp_path: Path) -> None:
    registry, policy = str(tmp_path / "registry" / "hvac"), policy_at(tmp_path / "policy", 1)
    assert run("registry", str(tmp_path / "registry")) == (
        1,
        f"CheckpointError: {tmp_path}/registry is no registry, and no name in one. 'offline promote' makes one.",
    )
    code, shown = run("promote", registry, policy)
    assert code == 1 and "PromotionError: There is no decision in" in shown
    code, shown = run("promote", registry, policy, "-s", "override=the first one", "-s", "moved_by=[bold]eve")
    assert code == 0 and f"{registry}@champion names policy " in shown and "Because       override: the first one" in shown
    assert run("registry", f"{registry}@champion") == run("registry", registry)
    code, shown = run("registry", registry, "--json")
    assert code == 0 and json.loads(shown)["hvac"]["champion"]["reason"] == "the first one"
    code, shown = run("promote", registry, policy, "-s", "override=again")
    assert code == 0 and "[ok] Not moved: " in shown
    challenger = ("-s", "alias=challenger", "-s", "moved_by=the building team")
    decision = decision_at(tmp_path / "decision", policy, registry=str(tmp_path / "others" / "pool"))
    code, shown = run("promote", str(tmp_path / "others" / "pool"), decision, *challenger)
    assert code == 0 and "pool@challenger names policy " in shown and "is better." in shown
    code, shown = run("rollback", registry)
    assert code == 1 and "it named no policy before the one" in shown
    for place in (registry, str(tmp_path / "registry")):
        code, shown = run("registry", place)
        assert code == 0 and "History" in shown
        assert all(word in shown for word in ("hvac@champion", "[bold]eve", "override: the first one"))
