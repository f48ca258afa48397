"""Estimates of policies from datasets."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.environments.vector_env import spaces_of
from offline_core.data.episodes import Episode
from offline_core.errors import ConfigError, EmptyDatasetError, NonFiniteError, PromotionError, SchemaError
from offline_core.judging.estimation.config import EstimateConfig
from offline_core.judging.estimation.estimate import enforce, estimate
from offline_core.judging.estimation.result import EstimateResult
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.config import NetworkConfig, TransformerConfig
from offline_core.policies.decision_transformer import DecisionTransformer
from offline_core.policies.policy import Policy
from offline_core.policies.recording.player import EpisodesToPlay, play
from offline_core.runtime.config import EnvironmentSpec, parse
from tests.cases import slow_but
from tests.judging.estimation.chains import (
    BEHAVIOUR,
    GAMMA,
    MOVES,
    REWARDS,
    SPACES,
    START,
    TARGET,
    played,
    policy_of,
    recorded,
    true_value,
)
from tests.learning.datasets import dataset_of

QUICK = ["is", "wis", "pdis", "wpdis"]
SMALL: dict[str, Any] = {"resamples": 50, "fqe": {"updates": 30, "network": {"hidden_sizes": [8]}}}


def saved(policy: Policy, place: Path, environment: EnvironmentSpec | None = None) -> str:
    save_policy(policy, str(place), operation=Operation(name="test"), environment=environment)
    return str(place)


def chain(folder: Path, episodes: int = 200, *, logp: bool = True, format: str = "episodes") -> str:
    made = recorded(played(episodes, seed=11), logp=logp)
    return dataset_of(folder / "data", made, spaces=SPACES, environment=None, format=format, rows=50)


def run_estimate(policy: str, dataset: str, **config: Any) -> EstimateResult:
    return estimate(parse(EstimateConfig, {"gamma": GAMMA, **SMALL} | config), policy=policy, dataset=dataset)


# What comes out.


@pytest.mark.parametrize("format", slow_but(["episodes", "table"], "episodes"))
def test_every_method_has_an_interval_around_the_value(tmp_path: Path, format: str) -> None:
    dataset, policy = chain(tmp_path, 3_000, format=format), saved(policy_of(TARGET), tmp_path / "policy")
    table = {"network": {"hidden_sizes": []}, "learning_rate": 0.02, "updates": 600}
    result = run_estimate(policy, dataset, resamples=200, confidence=0.99, fqe=table)
    assert list(result.estimates) == ["is", "wis", "pdis", "wpdis", "fqe", "dr", "wdr"]
    assert result.dataset == open_dataset(dataset).ref and result.open_episodes == 0 and not result.warnings
    assert result.recorded.low < true_value(BEHAVIOUR) < result.recorded.high < true_value(TARGET)
    for name, found in result.estimates.items():
        assert found.low < found.value < found.high
        if name != "fqe":
            assert found.low < true_value(TARGET) < found.high, name
            assert found.effective_episodes is not None and 100 < found.effective_episodes < 3_000
    assert result.estimates["fqe"].value == pytest.approx(true_value(TARGET), abs=0.3)
    assert result.estimates["fqe"].effective_episodes is None
    assert EstimateResult.model_validate_json(result.model_dump_json()) == result


@pytest.mark.parametrize("behaviour", [False, True])
def test_of_the_policy_that_recorded_it_is_the_mean_return(tmp_path: Path, behaviour: bool) -> None:
    dataset, policy = chain(tmp_path, logp=not behaviour), saved(policy_of(BEHAVIOUR), tmp_path / "policy")
    result = run_estimate(policy, dataset, methods=QUICK, behaviour=policy if behaviour else None)
    for found in result.estimates.values():
        assert found.value == pytest.approx(result.recorded.value, rel=1e-5)
        assert found.effective_episodes == pytest.approx(200, rel=1e-4)
        assert found.largest_weight == pytest.approx(1 / 200, rel=1e-3)


def test_a_behaviour_takes_the_place_of_what_was_recorded(tmp_path: Path) -> None:
    dataset, policy = chain(tmp_path), saved(policy_of(TARGET), tmp_path / "policy")
    assert run_estimate(policy, dataset, methods=["is"], behaviour=policy).estimates["is"].value == pytest.approx(
        run_estimate(policy, dataset, methods=["is"]).recorded.value
    )


CARTPOLE = EnvironmentSpec(id="CartPole-v1")


def balancing(k: float) -> Policy:
    """Leans to where the pole falls, the more surely the larger `k` is."""
    policy = Policy(*spaces_of(CARTPOLE), NetworkConfig(hidden_sizes=[]))
    head: Any = policy.head
    with torch.no_grad():
        head.logits.weight.copy_(k * torch.tensor([[0, -0.2, -2, -1.0], [0, 0.2, 2, 1.0]]))
        head.logits.bias.zero_()
    return policy.eval()


@pytest.mark.slow
def test_a_better_policy_from_an_exploring_ones_recording(tmp_path: Path) -> None:
    """CartPole: what it comes to when it is played is in the intervals, and what was recorded is not."""

    def play_all(policy: Policy, episodes: int, seed: int) -> list[Episode]:
        work = EpisodesToPlay(round=0, recorder=0, episodes=episodes)
        chunks = play(policy, CARTPOLE, work, identity="it", num_envs=200, seed=seed, explore=True)
        return [episode for chunk in chunks for episode in chunk]

    better = balancing(0.65)
    dataset = dataset_of(tmp_path / "data", play_all(balancing(0.5), 1_000, 0))
    config = {"gamma": 0.98, "confidence": 0.99, "methods": [*QUICK, "wdr"], "resamples": 300, "fqe": {"updates": 300}}
    result = run_estimate(saved(better, tmp_path / "policy"), dataset, **config)
    truth = np.mean([(1 - 0.98 ** len(episode)) / 0.02 for episode in play_all(better, 3_000, 1)])
    assert result.recorded.high < truth
    for name, found in result.estimates.items():
        assert found.low < truth < found.high, name
    assert result.estimates["wdr"].high - result.estimates["wdr"].low < 0.6 * (
        result.estimates["wis"].high - result.estimates["wis"].low
    )
    enforce(result, EstimateConfig(gamma=0.98, require_return=result.recorded.value))


def test_the_greedy_policy_weighs_by_what_it_would_have_done(tmp_path: Path) -> None:
    dataset, policy = chain(tmp_path, 5_000), saved(policy_of(TARGET), tmp_path / "policy")
    greedy = np.eye(2)[TARGET.argmax(axis=1)]
    result = run_estimate(policy, dataset, methods=QUICK, explore=False, resamples=100, confidence=0.99)
    for name, found in result.estimates.items():
        assert found.low < true_value(greedy) < found.high, name
    acted = saved(policy_of(BEHAVIOUR), tmp_path / "behaviour")
    weighed = run_estimate(policy, dataset, methods=QUICK, explore=False, behaviour=acted)
    for name, found in weighed.estimates.items():
        assert found.value == pytest.approx(result.estimates[name].value, rel=1e-5), f"{name}: who acted did explore"


def test_one_that_never_did_what_was_recorded_has_no_weighted_estimate(tmp_path: Path) -> None:
    made = [replace(each, actions=np.ones(len(each), np.int64)) for each in recorded(played(20, seed=1))]
    dataset = dataset_of(tmp_path / "data", made, spaces=SPACES, environment=None)
    policy = saved(policy_of(np.array([[0.9, 0.1]] * 3)), tmp_path / "policy")
    result = run_estimate(policy, dataset, methods=QUICK, explore=False)
    assert result.estimates["is"].value == 0 and np.isnan(result.estimates["wis"].value)
    lost, few = result.warnings
    assert "At step 0 every episode has done what this policy never does" in lost and "mean nothing" in few
    again = EstimateResult.model_validate_json(result.model_dump_json())
    assert again.estimates["wis"].low == -np.inf and np.isnan(again.estimates["wis"].value)
    assert run_estimate(policy, dataset, methods=QUICK, explore=False).reused


def test_what_follows_a_truncation_is_not_in_what_is_weighed(tmp_path: Path) -> None:
    made = [replace(each, terminated=False, truncated=True) for each in recorded(played(50, seed=1))]
    dataset = dataset_of(tmp_path / "data", made, spaces=SPACES, environment=None)
    policy = saved(policy_of(BEHAVIOUR), tmp_path / "policy")
    result = run_estimate(policy, dataset, gamma=1.0, methods=QUICK)
    assert result.open_episodes == 50
    assert result.estimates["is"].value == pytest.approx(np.mean([each.return_ for each in made]), rel=1e-5)
    with pytest.raises(ConfigError, match=r"wdr: 50 of 50 episodes were truncated .* Set gamma below 1, or horizon to "):
        run_estimate(policy, dataset, gamma=1.0, methods=["is", "wdr"])


@pytest.mark.slow
def test_where_some_episodes_terminate_and_others_are_truncated(tmp_path: Path) -> None:
    """After two steps. What would have followed is in fqe, dr and wdr; what was recorded is all that the others tell of.

    Unless these two steps are the horizon, as is taken for granted: then all tell of the same.
    """
    whole = recorded(played(3_000, seed=12))
    made = [each if len(each) <= 2 else replace(each.slice(0, 2), truncated=True) for each in whole]
    dataset = dataset_of(tmp_path / "data", made, spaces=SPACES, environment=None, rows=500)
    table = {"network": {"hidden_sizes": []}, "learning_rate": 0.02, "updates": 600}
    policy, config = saved(policy_of(TARGET), tmp_path / "policy"), {"resamples": 200, "confidence": 0.99, "fqe": table}
    result = run_estimate(policy, dataset, horizon="continuing", **config)
    assert result.warnings == [] and result.open_episodes == sum(len(each) > 2 for each in whole)
    assert 500 < result.open_episodes < 2_500
    step, moves = (TARGET * REWARDS).sum(axis=1), np.einsum("sa,sab->sb", TARGET, MOVES)
    in_two_steps = START @ (step + GAMMA * moves @ step)
    assert in_two_steps < 0.8 * true_value(TARGET)
    for name in QUICK:
        assert result.estimates[name].low < in_two_steps < result.estimates[name].high, name
    for name in ("dr", "wdr"):
        assert result.estimates[name].low < true_value(TARGET) < result.estimates[name].high, name
    assert result.estimates["fqe"].value == pytest.approx(true_value(TARGET), abs=0.3)
    within = run_estimate(policy, dataset, **config)
    assert within.horizon == 2 and within.open_episodes == 0
    for name, found in within.estimates.items():
        assert name == "fqe" or found.low < in_two_steps < found.high, name
    assert within.estimates["fqe"].value == pytest.approx(in_two_steps, abs=0.2)


@pytest.mark.parametrize("kind", slow_but(["lstm", "gru", "frames"], "lstm", "frames"))
def test_policies_that_remember(tmp_path: Path, kind: str) -> None:
    """Recorded by one of them, with what it remembered; the estimate of it is the mean return."""
    network = NetworkConfig(hidden_sizes=[8], frames=3) if kind == "frames" else NetworkConfig(hidden_sizes=[8], recurrent=kind)
    policy = Policy(*spaces_of(CARTPOLE), network, seed=3).eval()
    with torch.no_grad():
        policy.head.logits.weight.mul_(300)  # type: ignore[attr-defined]
    work = EpisodesToPlay(round=0, recorder=0, episodes=30)
    chunks = play(policy, CARTPOLE, work, identity="it", num_envs=10, seed=0, explore=True)
    dataset = dataset_of(tmp_path / "data", [episode for chunk in chunks for episode in chunk], rows=7)
    place = saved(policy, tmp_path / "policy")
    result = run_estimate(place, dataset, methods=QUICK)
    assert all(found.value == pytest.approx(result.recorded.value, rel=1e-4) for found in result.estimates.values())
    if kind == "frames":
        assert np.isfinite(run_estimate(place, dataset, methods=["dr"]).estimates["dr"].value)
    else:
        with pytest.raises(ConfigError, match=r"fqe, dr, wdr: a Q function sees single observations, and this policy"):
            run_estimate(place, dataset)


# What is kept.


def test_it_is_kept_beside_the_policy_and_found_again(tmp_path: Path) -> None:
    dataset, policy = chain(tmp_path), saved(policy_of(TARGET), tmp_path / "policy")
    before = {path.name: path.read_bytes() for path in (tmp_path / "policy").iterdir()}
    first = run_estimate(policy, dataset)
    assert {path.name: path.read_bytes() for path in (tmp_path / "policy").iterdir() if path.is_file()} == before
    assert [str(path) for path in (tmp_path / "policy" / "_estimates").iterdir()] == [first.uri]
    assert run_estimate(policy, dataset, require_return=1.0) == first.model_copy(update={"reused": True}), (
        "a gate is none of it"
    )
    assert not run_estimate(policy, dataset, seed=1).reused
    assert not run_estimate(policy, dataset, behaviour=policy).reused
    shutil.copytree(policy, tmp_path / "copy")
    assert run_estimate(policy, dataset, behaviour=str(tmp_path / "copy")).reused, "the same weights, elsewhere"
    saved(policy_of(BEHAVIOUR), tmp_path / "policy")
    assert not run_estimate(policy, dataset).reused


def test_what_comes_next_decides_on_what_was_estimated(tmp_path: Path) -> None:
    policy, data = saved(policy_of(TARGET), tmp_path / "policy"), chain(tmp_path)
    asked = {"explore": False, "gamma": 1, "behaviour": policy, "methods": ["wis"], "seed": 3}
    told = f"-s estimate.gamma=1.0 -s estimate.explore=false -s estimate.behaviour={policy}"
    assert run_estimate(policy, data, **asked).card().next == f"offline decide {data} {policy} {told}"
    assert run_estimate(policy, data, gamma=0.99).card().next == f"offline decide {data} {policy}"


def test_noise_that_nothing_is_played_with_is_told(tmp_path: Path) -> None:
    policy, data = saved(policy_of(TARGET), tmp_path / "policy"), chain(tmp_path)
    [warning] = [each for each in run_estimate(policy, data, noise=0.5).warnings if "noise" in each]
    assert warning.startswith("No policy is played with the noise of 0.5 that was asked for") and "is a checkpoint." in warning


def test_the_seed_decides(tmp_path: Path) -> None:
    dataset, policy = chain(tmp_path), saved(policy_of(TARGET), tmp_path / "policy")
    once = run_estimate(policy, dataset)
    shutil.rmtree(tmp_path / "policy" / "_estimates")
    assert run_estimate(policy, dataset).estimates == once.estimates
    other = run_estimate(policy, dataset, seed=1).estimates
    assert other["is"].value == once.estimates["is"].value and other["is"].low != once.estimates["is"].low
    assert other["fqe"].value != once.estimates["fqe"].value


def test_a_policy_where_nobody_may_write_is_estimated_all_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset, policy = chain(tmp_path), saved(policy_of(TARGET), tmp_path / "policy")
    (tmp_path / "policy" / "_estimates").write_text("no folder")
    with caplog.at_level(logging.WARNING):
        assert run_estimate(policy, dataset, methods=["is"]).estimates["is"].value > 0
    assert "The result is not kept at" in caplog.text


# What is refused, and what is doubted.


def test_without_probabilities_both_ways_to_them_are_told(tmp_path: Path) -> None:
    policy = saved(policy_of(TARGET), tmp_path / "policy")
    for format in ("episodes", "table"):
        dataset = chain(tmp_path / format, logp=False, format=format)
        with pytest.raises(SchemaError, match=r"data has no column action_logp.*keep_action_distribution.*by 'behaviour'"):
            run_estimate(policy, dataset)
        assert run_estimate(policy, dataset, methods=["fqe"]).estimates.keys() == {"fqe"}, "which weighs nothing"


def test_a_probability_that_is_no_number_is_refused(tmp_path: Path) -> None:
    made = recorded(played(5, seed=0))
    made[2].extras["action_logp"][0] = np.nan
    dataset = dataset_of(tmp_path / "data", made, spaces=SPACES, environment=None)
    with pytest.raises(NonFiniteError, match=r"data: Column action_logp is NaN or infinite in "):
        run_estimate(saved(policy_of(TARGET), tmp_path / "policy"), dataset)


@pytest.mark.parametrize("format", ["episodes", "table"])
def test_several_probabilities_a_step_are_refused(tmp_path: Path, format: str) -> None:
    made = recorded(played(5, seed=0))
    each = [replace(one, extras={"action_logp": np.zeros((len(one), 2), np.float32)}) for one in made]
    dataset = dataset_of(tmp_path / "data", each, spaces=SPACES, environment=None, format=format)
    with pytest.raises(SchemaError, match=r"data: Column action_logp has values of shape \(2,\) a step; it has to be one"):
        run_estimate(saved(policy_of(TARGET), tmp_path / "policy"), dataset)


def test_data_of_another_kind_is_refused(tmp_path: Path, cartpole_policy: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"Policy {cartpole_policy} has the observation space Box.*, dataset .*data has Discrete"
    ):
        run_estimate(cartpole_policy, chain(tmp_path))


def test_a_decision_transformer_is_refused(tmp_path: Path) -> None:
    layers = TransformerConfig(target_return=1.0, return_scale=1.0)
    place = saved(DecisionTransformer(*SPACES, NetworkConfig(transformer=layers)), tmp_path / "policy")
    with pytest.raises(ConfigError, match=r"cannot be estimated yet.*offline evaluate"):
        run_estimate(place, dataset_of(tmp_path / "data", recorded(played(5, seed=0)), spaces=SPACES, environment=None))


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    dataset = chain(tmp_path)
    shutil.rmtree(tmp_path / "data" / "_versions")
    with pytest.raises(SchemaError, match=r"has no manifest.*'offline import .*data -o .*data-imported'"):
        run_estimate(saved(policy_of(TARGET), tmp_path / "policy"), dataset)


def test_an_empty_dataset_is_refused(tmp_path: Path) -> None:
    spec = recorded(played(1, seed=0))[0]
    nothing = replace(spec, observations=spec.observations[:1], actions=spec.actions[:0], rewards=spec.rewards[:0])
    nothing = replace(nothing, extras={"action_logp": np.zeros(0, np.float32)}, terminated=False)
    dataset = dataset_of(tmp_path / "data", [nothing], spaces=SPACES, environment=None)
    with pytest.raises(EmptyDatasetError, match="holds no steps to estimate from"):
        run_estimate(saved(policy_of(TARGET), tmp_path / "policy"), dataset, methods=["is"])


def test_few_effective_episodes_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset, policy = chain(tmp_path, 9), saved(policy_of(TARGET), tmp_path / "policy")
    for reused in (False, True):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            result = run_estimate(policy, dataset)
        [warning] = result.warnings
        assert "So few episodes count that these estimates mean nothing (effective episodes: is " in warning
        assert result.reused == reused and warning in caplog.text
        assert result.card().word == "Too few episodes"


# The gate.


def test_the_gate_lets_through_what_is_shown_and_stops_the_rest(tmp_path: Path) -> None:
    result = run_estimate(saved(policy_of(TARGET), tmp_path / "policy"), chain(tmp_path), methods=["is", "wis", "wdr"])
    found = result.estimates["wdr"]
    enforce(result, EstimateConfig())
    enforce(result, EstimateConfig(require_return=found.low))
    assert found.low < found.value - 0.01
    with pytest.raises(
        PromotionError, match=r"policy is not shown to reach a discounted return of .* 95 % of resamples .* Record more"
    ):
        enforce(result, EstimateConfig(require_return=found.value))
    with pytest.raises(PromotionError, match="is says"):
        enforce(result, EstimateConfig(require_return=100.0, gate_method="is"))
    with pytest.raises(ConfigError, match="gate_method pdis is none of the methods that were estimated: is, wis, wdr"):
        enforce(result, EstimateConfig(require_return=1.0, gate_method="pdis"))
    for number, message in ((np.nan, "nan"), (np.inf, "within inf to inf")):  # no estimate, and one beyond every number
        nothing = found.model_copy(update={"value": number, "low": number, "high": number})
        with pytest.raises(PromotionError, match=message):
            enforce(result.model_copy(update={"estimates": {"wdr": nothing}}), EstimateConfig(require_return=-1e9))


def test_the_gate_stays_shut_for_what_means_nothing(tmp_path: Path) -> None:
    """One heavy episode: its interval is a point, and shows nothing."""
    dataset, policy = chain(tmp_path, 9), saved(policy_of(TARGET), tmp_path / "policy")
    result = run_estimate(policy, dataset, methods=["wis"])
    with pytest.raises(PromotionError, match=r"effective episodes, and 10 are needed"):
        enforce(result, EstimateConfig(methods=["wis"], gate_method="wis", require_return=-1e9))


def test_one_episode_with_30_percent_of_the_weights_is_a_warning_and_passes_no_gate(tmp_path: Path) -> None:
    """Eleven effective episodes are left, which would be enough."""
    logs = np.full(1_000, np.log(BEHAVIOUR[0, 0]))
    logs[0] -= np.log(999 * 0.3 / 0.7)
    made = recorded([(np.zeros(1, np.int64), np.zeros(1, np.int64))] * 1_000)
    made = [replace(each, extras={"action_logp": logs[i : i + 1]}) for i, each in enumerate(made)]
    dataset = dataset_of(tmp_path / "data", made, spaces=SPACES, environment=None)
    result = run_estimate(saved(policy_of(BEHAVIOUR), tmp_path / "policy"), dataset, methods=["wis"])
    assert any("One episode has too much of all weights (wis 30 %)" in warning for warning in result.warnings)
    with pytest.raises(PromotionError, match="but one episode has 30 % of all weights"):
        enforce(result, EstimateConfig(methods=["wis"], gate_method="wis", require_return=-1e9))


def test_the_gate_needs_its_method() -> None:
    with pytest.raises(ConfigError, match="gate_method wdr is none of the methods is, wis; add it there"):
        parse(EstimateConfig, {"methods": ["is", "wis"], "require_return": 1.0})
    parse(EstimateConfig, {"methods": ["is", "wis"]})
