"""From a real decision to a champion, and the next decision against it by its address."""

from __future__ import annotations

from pathlib import Path

import pytest

import offline_core as offline
from offline_core.errors import PromotionError
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.decide import decide
from offline_core.runtime.config import parse
from tests.judging.estimation.chains import BEHAVIOUR, TARGET, policy_of
from tests.judging.estimation.test_estimate import chain, saved

FQE = {"updates": 80, "learning_rate": 0.02, "network": {"hidden_sizes": [8]}}
CONFIG = {"estimate": {"gamma": 0.9, "resamples": 100, "fqe": FQE}, "examine_updates": 100}


def test_a_decision_promotes_and_the_next_one_is_against_the_champion(tmp_path: Path) -> None:
    data, hvac = chain(tmp_path, 600), str(tmp_path / "registry" / "hvac")
    better = saved(policy_of(0.5 * BEHAVIOUR + 0.5 * TARGET), tmp_path / "better")
    config = parse(DecisionConfig, CONFIG | {"registry": hvac})
    first = decide(config, dataset=data, candidates=[better], output=str(tmp_path / "first"))
    assert first.verdict == "promote" and first.against_fingerprint is None
    made = offline.promote(first, registry=hvac)
    assert made.move.evidence is not None and made.move.evidence.sentence == first.sentence

    worse = saved(policy_of(BEHAVIOUR), tmp_path / "worse")
    assert first.registry == hvac
    against = parse(DecisionConfig, CONFIG | {"against": made.address})
    second = decide(against, dataset=data, candidates=[worse], output=str(tmp_path / "second"))
    assert (second.against, second.against_fingerprint) == (made.checkpoint, made.move.fingerprint)
    assert second.verdict != "promote" and second.registry == hvac
    with pytest.raises(PromotionError, match=rf"the verdict of .*/second is {second.verdict}"):
        offline.promote(second, registry=hvac)
    again = decide(against, dataset=data, candidates=[worse], output=str(tmp_path / "second"))
    assert again.reused
