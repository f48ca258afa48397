"""Results in a notebook, and where another stage wants a policy or a dataset."""

from __future__ import annotations

import pytest
from gymnasium import spaces

from offline_core.learning.experts.result import ExpertResult
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.runtime.result import html_table


def test_a_table_is_escaped_and_long_values_are_cut() -> None:
    table = html_table("a<b", {"<script>": "&" * 300, "n": 7})
    assert table == (
        "<table><caption>a&lt;b</caption><tr><th>&lt;script&gt;</th>"
        f"<td>{'&amp;' * 200}…</td></tr><tr><th>n</th><td>7</td></tr></table>"
    )


def test_a_result_shows_its_fields_and_names_its_policy() -> None:
    result = ExpertResult(
        checkpoint="/runs/<best>",
        reached_target=True,
        target_return=None,
        metrics={"episode_return_mean": 7.5},
        env_steps=10,
        updates=1,
        seconds=1.0,
        curve=[],
    )
    assert result.best == "/runs/<best>" and result.mean_return == 7.5
    shown = result._repr_html_()
    assert shown.startswith("<table><caption>ExpertResult</caption>")
    assert "<tr><th>checkpoint</th><td>/runs/&lt;best&gt;</td></tr>" in shown
    assert [shown.count(f"<th>{name}</th>") for name in ExpertResult.model_fields] == [1] * len(ExpertResult.model_fields)


@pytest.mark.parametrize("show", ["__repr__", "_repr_html_"])
def test_a_policy_says_what_it_is(show: str) -> None:
    policy = Policy(spaces.Box(-1, 1, (3,)), spaces.Discrete(2), NetworkConfig(hidden_sizes=[8], recurrent="gru"))
    shown = getattr(policy, show)()
    assert all(part in shown for part in ("Policy", "Box(-1.0, 1.0, (3,), float32)", "Discrete(2)", "[8]", "gru", "14,370"))
