"""Results in a notebook, and where another stage wants a policy or a dataset."""

from __future__ import annotations

import pytest
from gymnasium import spaces

from offline_core.learning.result import ExpertResult
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy


def test_a_result_shows_itself_as_its_card_and_names_its_policy() -> None:
    metrics = {"episode_return_mean": 7.5, "episode_return_std": 1.0, "episodes": 30.0}
    ends = {"episode_return_min": 1.0, "episode_return_max": 9.0, "episode_length_mean": 8.0}
    result = ExpertResult(
        checkpoint="/runs/<best>",
        reached_target=True,
        target_return=None,
        metrics=metrics | ends,
        env_steps=10,
        updates=1,
        seconds=1.0,
        curve=[],
    )
    assert result.best == "/runs/<best>" and result.mean_return == 7.5
    assert repr(result) == "ExpertResult(Played: Return 7.5 ± 1.0 over 30 episodes (greedy actions).)"
    shown = result._repr_html_()
    assert 'class="offline-card"' in shown and "<td>/runs/&lt;best&gt;</td>" in shown and "<html" not in shown


@pytest.mark.parametrize("show", ["__repr__", "_repr_html_"])
def test_a_policy_says_what_it_is(show: str) -> None:
    policy = Policy(spaces.Box(-1, 1, (3,)), spaces.Discrete(2), NetworkConfig(hidden_sizes=[8], recurrent="gru"))
    shown = getattr(policy, show)()
    assert all(part in shown for part in ("Policy", "Box(-1.0, 1.0, (3,), float32)", "Discrete(2)", "[8]", "gru", "14,370"))
