"""The Decision Transformer: its columns and loss by hand, what it is cut into, and that it learns what a return goes with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.data.episodes import Episode
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.dt import DT, TIMES
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.config import TrainingConfig
from offline_core.learning.learner import Learner
from offline_core.learning.returns import RETURNS_TO_GO
from offline_core.learning.steps import MASK, Batch, Steps
from offline_core.learning.train import train
from offline_core.learning.work import make_run
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.decision_transformer import DecisionTransformer
from offline_core.policies.manifest import read_policy_manifest
from offline_core.runtime.config import parse
from tests.acceptance.forms import run_import
from tests.cases import slow_but
from tests.learning.algorithms.making import BOX, TWO, VECTOR, log_softmax, made_steps, numpy_of, with_box_actions
from tests.learning.datasets import dataset_of
from tests.learning.making import batch_of
from tests.learning.test_train import balancing_episodes

SMALL: dict[str, Any] = {"layers": 2, "heads": 2, "units": 8, "context_steps": 4, "max_episode_steps": 6, "dropout": 0.0}
RETURNS: dict[str, Any] = {"target_return": 3.0, "return_scale": 2.0}
NETWORK = NetworkConfig(hidden_sizes=[6])


def made(space: gym.Space[Any] = BOX, observations: gym.Space[Any] = VECTOR, *, seed: int = 0, **values: Any) -> DT:
    return Networks(DT(**SMALL | RETURNS | values), observations, space, NETWORK, seed=seed)


def learner_of(networks: Networks, steps: Steps, **values: Any) -> Learner:
    learner = Learner(networks, parse(TrainingConfig, {"algorithm": "dt"} | values), total_steps=1000)
    learner.load(steps)
    return learner


def sequences_of(networks: Networks, steps: Steps) -> tuple[Batch, torch.Tensor]:
    """All steps in one batch, as the learner hands it over, and the mask (S, L)."""
    learner = learner_of(networks, steps)
    batch = steps.batch(steps.indices(learner.spec), learner.spec)
    return learner.nested(batch), batch[MASK]


def test_returns_to_go_and_times_by_hand() -> None:
    """Of three episodes, of which only the second has ended."""
    steps = made_steps([3, 1, 2], [False, True, False])
    steps.columns["rewards"] = torch.tensor([1.0, 2.0, 4.0, torch.nan, 8.0, torch.nan, 0.5, -1.0, torch.nan])
    networks = made()
    networks.algorithm.prepare(networks, steps, learner_of(made(), steps).spec)
    assert steps.columns[RETURNS_TO_GO][steps.rows].tolist() == [7.0, 6.0, 4.0, 8.0, -0.5, -1.0]
    assert steps.columns[TIMES][steps.rows].tolist() == [0, 1, 2, 0, 0, 1]


def test_no_observation_after_the_last_step_is_needed() -> None:
    """As `made_steps` above, without the rows for it, which it does not ask the reader for."""
    assert not DT.needs_next_obs
    batch = batch_of([3, 1], needs_next_obs=False)
    steps = Steps.of(batch | {"rewards": np.array([1.0, 2.0, 4.0, 8.0])})
    networks = made()
    networks.algorithm.prepare(networks, steps, learner_of(made(), steps).spec)
    assert steps.columns[RETURNS_TO_GO].tolist() == [7.0, 6.0, 4.0, 8.0]
    assert steps.columns[TIMES].tolist() == [0, 1, 2, 0]


def normalized(x: np.ndarray, w: dict[str, np.ndarray], name: str) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


def linear(x: np.ndarray, w: dict[str, np.ndarray], name: str) -> np.ndarray:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def inputs_by_hand(w: dict[str, np.ndarray], obs: np.ndarray, actions: np.ndarray, to_go: np.ndarray) -> np.ndarray:
    """(L, outputs) of the head, for one sequence from the beginning of its episode: no batches, no masks, token by token.

    Arguments:
        actions: (L, size), as the network sees them.
    """
    length, units, heads = len(obs), SMALL["units"], SMALL["heads"]
    tokens = np.empty((3 * length, units))
    for t in range(length):
        time = w["time.weight"][min(t, SMALL["max_episode_steps"] - 1)]
        tokens[3 * t] = linear(to_go[t : t + 1] / RETURNS["return_scale"], w, "return_token") + time
        tokens[3 * t + 1] = linear(np.tanh(linear(obs[t], w, "hidden.0")), w, "observation_token") + time
        tokens[3 * t + 2] = linear(actions[t], w, "action_token") + time
    x = normalized(tokens, w, "before.0")
    for number in range(SMALL["layers"]):
        name = f"layers.{number}"
        query, key, value = np.split(
            normalized(x, w, f"{name}.norm1") @ w[f"{name}.self_attn.in_proj_weight"].T + w[f"{name}.self_attn.in_proj_bias"],
            3,
            axis=1,
        )
        seen = np.empty_like(x)
        for head in range(heads):
            own = slice(head * units // heads, (head + 1) * units // heads)
            for i in range(len(x)):
                scores = key[: i + 1, own] @ query[i, own] / np.sqrt(units // heads)
                seen[i, own] = np.exp(log_softmax(scores)) @ value[: i + 1, own]
        x = x + linear(seen, w, f"{name}.self_attn.out_proj")
        x = x + linear(np.maximum(linear(normalized(x, w, f"{name}.norm2"), w, f"{name}.linear1"), 0), w, f"{name}.linear2")
    return linear(normalized(x, w, "after")[1::3], w, "_head.mean" if "_head.mean.weight" in w else "_head.logits")


@pytest.mark.parametrize("space", [BOX, TWO], ids=["squared error", "cross-entropy"])
def test_the_loss_of_each_step_in_float64(space: gym.Space[Any]) -> None:
    """Episodes shorter and longer than a sequence and than the times that are told apart; padding is left out."""
    networks, lengths = made(space, context_steps=8), [8, 2, 5]
    with torch.no_grad():
        for parameter in networks.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    steps = made_steps(lengths, [True, False, True])
    steps = with_box_actions(steps) if space is BOX else steps
    batch, mask = sequences_of(networks, steps)
    found = networks(batch).loss[mask.flatten()].detach().numpy()

    w, expected, begin = numpy_of(networks.policy), [], 0
    columns = {name: steps.columns[name].double().numpy() for name in ("obs", "actions", "rewards")}
    for length in lengths:
        rows = slice(begin, begin + length)
        obs, actions = columns["obs"][rows], columns["actions"][rows]
        to_go = columns["rewards"][rows][::-1].cumsum()[::-1]
        seen = (actions - 1.0) / 2.0 if space is BOX else np.eye(2)[actions.astype(int)]
        outputs = inputs_by_hand(w, obs, seen, to_go)
        if space is BOX:
            expected.append(((np.tanh(outputs) - seen) ** 2).mean(axis=1))
        else:
            expected.append(-(log_softmax(outputs) * seen).sum(axis=1))
        begin += length + 1
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-4, atol=1e-5)


def test_each_epoch_has_each_step_once_and_begins_sequences_elsewhere() -> None:
    """Else the step after a cut would always be without what came before it, and in play it is not."""
    learner = learner_of(made(context_steps=4), with_box_actions(made_steps([9, 3, 1], [True, False, True])))
    assert learner._steps is not None
    begins = []
    for epoch in range(40):
        indices = learner.indices(epoch, 0)
        batch = learner._steps.batch(indices, learner._cut)
        assert sorted(batch["obs"][batch[MASK]][:, 0].tolist()) == sorted(
            learner._steps.columns["obs"][learner._steps.rows, 0].tolist()
        )
        assert batch[MASK].shape[1] == 4 and learner._steps.count(indices, learner._cut) == 13
        begins.append(tuple(indices.tolist()))
    assert len(set(begins)) == 4
    assert {row for each in begins for row in each} == set(learner._steps.rows.tolist()), "all steps are first some time"
    assert learner.indices(7, 0).tolist() == list(begins[7]), "a function of the epoch, for runs that go on"


def test_what_can_learn_gets_a_gradient_and_an_empty_share_teaches_nothing() -> None:
    for space in (BOX, TWO):
        networks = made(space)
        steps = made_steps([9, 3], [True, False])
        batch, _ = sequences_of(networks, with_box_actions(steps) if space is BOX else steps)
        terms = networks(batch)
        terms.loss.mean().backward()
        trained = [parameter for parameter in networks.parameters() if parameter.requires_grad]
        assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in trained)
        assert not any(term.requires_grad for term in terms.metrics.values())
        networks.zero_grad()
        networks({name: column[:0] for name, column in batch.items()}).loss.sum().backward()
        assert not any(parameter.grad is None or parameter.grad.any() for parameter in trained)


def test_the_seed_alone_decides_the_weights() -> None:
    first, again, other = (made(seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(tensor, again[name]) for name, tensor in first.items())
    assert not any(torch.equal(tensor, other[name]) for name, tensor in first.items() if tensor.ndim == 2)


@pytest.mark.parametrize(
    "observations",
    [gym.spaces.Dict(a=VECTOR, b=gym.spaces.Discrete(4)), gym.spaces.Box(0, 255, (12, 12, 1), "uint8")],
    ids=["nested", "images"],
)
def test_observations_of_every_kind_in_bfloat16(observations: gym.Space[Any]) -> None:
    networks, steps = made(TWO, observations), made_steps([9, 3], [True, False])
    if isinstance(observations, gym.spaces.Dict):
        steps.columns |= {"obs/a": steps.columns.pop("obs"), "obs/b": torch.arange(14) % 4}
    else:
        steps.columns["obs"] = torch.randint(0, 256, (14, 12, 12, 1), dtype=torch.uint8)
    batch, mask = sequences_of(networks, steps)
    exact = networks(batch).loss[mask.flatten()]
    with torch.autocast("cpu", torch.bfloat16):
        loss = networks(batch).loss[mask.flatten()]
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, exact, rtol=0.1, atol=0.1)


@pytest.mark.parametrize(
    ("space", "network", "config", "match"),
    [
        (TWO, {"recurrent": "gru"}, {}, r"network\.recurrent to None"),
        (TWO, {"frames": 4}, {}, r"network\.frames to 1"),
        (gym.spaces.Dict(a=TWO), {}, {}, "use bc, marwil, iql or awac for Dict and Tuple"),
        (gym.spaces.Box(-1, np.inf, (2,)), {}, {}, r"needs actions with bounds.*action_space=\{space: box, .*shape: \[2\]\}"),
        (TWO, {}, {"target_return": None}, r"set dt\.target_return"),
    ],
    ids=["memory", "frames", "composite", "no bounds", "no returns"],
)
def test_what_does_not_fit_is_refused(
    space: gym.Space[Any], network: dict[str, Any], config: dict[str, Any], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        Networks(DT(**SMALL | RETURNS | config), VECTOR, space, NetworkConfig(**network))


def test_its_part_of_a_network_is_set_by_no_one_else() -> None:
    network = made().policy.network
    with pytest.raises(ConfigError, match=r"network\.transformer is what dt sets"):
        Networks(DT(**SMALL | RETURNS), VECTOR, BOX, network)
    assert "transformer" not in NetworkConfig.model_json_schema()["properties"]


def settings(**values: Any) -> TrainingConfig:
    optimizer = {"batch_size": 64, "max_updates": 4, "updates_per_iteration": 2}
    evaluation = {"episodes": 2, "location": "process", "target_return": 501}
    base = {"algorithm": "dt", "dt": SMALL, "optimizer": optimizer, "evaluation": evaluation, "data": {"prelearners": 0}}
    return parse(TrainingConfig, base | values)


def test_rewards_on_another_scale_than_the_environments_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"leave data\.rewards out"):
        settings(data={"rewards": {"scale": 0.1}})


@pytest.mark.parametrize("format", slow_but(["episodes", "table"], "episodes"))
def test_it_is_trained_and_played_and_its_checkpoint_has_the_target(tmp_path: Path, format: Any) -> None:
    """The dataset's best return, and the largest to divide by."""
    episodes = [*balancing_episodes(3, 60), *balancing_episodes(3, 100, seed=1)]
    dataset = dataset_of(tmp_path / "data", episodes, format=format)
    result = train(settings(), dataset=dataset, output=str(tmp_path / "out"))
    assert [updates for updates, _ in result.curve] == [2, 4]
    transformer = read_policy_manifest(result.checkpoint).network.transformer
    assert transformer is not None
    assert (transformer.target_return, transformer.return_scale, transformer.context_steps) == (100.0, 100.0, 4)
    given = settings(dt=SMALL | {"target_return": 70.0, "return_scale": 10.0})
    run = make_run(given, dataset, str(tmp_path / "other"), None)
    assert (run.config.dt.target_return, run.config.dt.return_scale) == (70.0, 10.0)


def test_returns_that_only_code_knows_have_to_be_given(tmp_path: Path) -> None:
    data = {"prelearners": 0, "connectors": [{"path": f"{__name__}:unchanged"}]}
    dataset = dataset_of(tmp_path, balancing_episodes(1, 5))
    with pytest.raises(ConfigError, match=r"Your code makes the steps of .* set dt\.target_return and dt\.return_scale"):
        make_run(settings(data=data), dataset, "/nowhere", None)
    make_run(settings(data=data, dt=SMALL | RETURNS), dataset, "/nowhere", None)


def unchanged(batch: Any) -> Any:
    """A connector."""
    return batch


def episode(number: int, action: int, rng: np.random.Generator) -> Episode:
    """Ten steps of one action; each pays it."""
    return Episode(
        eps_id=str(number),
        observations=rng.normal(size=(11, 3)).astype(np.float32),
        actions=np.full(10, action),
        rewards=np.full(10, float(action)),
        truncated=True,
        observation_space=VECTOR,
        action_space=TWO,
    )


def test_it_does_what_went_with_the_return_that_it_plays_for(tmp_path: Path) -> None:
    """Recorded were ten steps of action 0, which pay 0, and of action 1, which pay 10; a clone would do either."""
    rng = np.random.default_rng(0)
    episodes = [episode(number, number % 2, rng) for number in range(40)]
    dataset = dataset_of(tmp_path / "data", episodes, spaces=(VECTOR, TWO), environment=None)
    optimizer = {"batch_size": 160, "max_updates": 60, "learning_rate": 3e-3, "updates_per_iteration": None}
    config = settings(network={"hidden_sizes": []}, optimizer=optimizer, dt=SMALL | {"max_episode_steps": 10})
    learned = load_policy(train(config, dataset=dataset, output=str(tmp_path / "out")).last_checkpoint)
    transformer = learned.network.transformer
    assert transformer is not None
    for target, action in ((10.0, 1), (0.0, 0)):
        asked = transformer.model_copy(update={"target_return": target})
        policy = DecisionTransformer(VECTOR, TWO, learned.network.model_copy(update={"transformer": asked})).eval()
        policy.load_state_dict(learned.state_dict())
        state, chosen = policy.initial_state(20), []
        for _ in range(10):
            actions, state = policy.act(rng.normal(size=(20, 3)).astype(np.float32), state)
            state = state.received(actions.astype(np.float64))
            chosen.append(actions)
        assert (np.stack(chosen) == action).mean() > 0.95


@pytest.mark.slow
@pytest.mark.usefixtures("ray_up")
def test_it_learns_cartpole_from_rllibs_recording(rllib_recordings: Path, tmp_path: Path) -> None:
    """40 episodes with returns of 196 to 500."""
    environment = {"environment": {"id": "CartPole-v1"}}
    dataset = run_import(rllib_recordings / "cartpole_json_packed", tmp_path / "data", **environment)[0].dataset.uri
    config = settings(
        dt={"layers": 1, "units": 32, "context_steps": 8},
        optimizer={"batch_size": 512, "max_updates": 300, "learning_rate": 3e-3, "updates_per_iteration": 100},
        evaluation={"episodes": 10, "location": "process", "target_return": 450},
    )
    result = train(config, dataset=dataset, output=str(tmp_path / "out"))
    assert result.reached_target, result.curve
