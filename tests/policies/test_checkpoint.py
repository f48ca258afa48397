"""Policies on disk: the same policy comes back, or an error that says what is wrong where."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from offline_core.data.datasets.manifest import Operation, Parent
from offline_core.data.episodes import nested
from offline_core.data.store.location import Location
from offline_core.errors import CheckpointError, StorageError
from offline_core.policies import checkpoint
from offline_core.policies import manifest as manifests
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.manifest import PolicyManifest, read_policy_manifest
from offline_core.policies.policy import Policy, as_tensors
from offline_core.runtime.config import EnvironmentSpec
from tests.data.datasets.factories import edit_json, flip_bit
from tests.policies.sampling import observed

VECTOR = spaces.Box(-1, 1, (4,))
MADE = Operation(name="made by a test", config={"rate": 0.5})


def policy_with(seed: int = 0, *, hidden_sizes: tuple[int, ...] = (8,), actions: gym.Space[Any] = spaces.Discrete(3)) -> Policy:
    return Policy(VECTOR, actions, NetworkConfig(hidden_sizes=list(hidden_sizes)), seed=seed)


def save(policy: Policy, folder: Path, **more: Any) -> PolicyManifest:
    return save_policy(policy, str(folder), operation=MADE, **more)


def files(folder: Path) -> set[str]:
    return set(os.listdir(folder))


IMAGE = spaces.Box(0, 255, (16, 18, 3), np.uint8)
COMPOSITE = spaces.Dict([("z", spaces.Box(-2, 2, (2,))), ("a", spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]))])
NESTED = spaces.Dict([("z", spaces.Discrete(3, start=1)), ("a", spaces.Tuple([VECTOR, spaces.MultiBinary(2)]))])
KINDS: dict[str, tuple[gym.Space[Any], gym.Space[Any], NetworkConfig]] = {
    "nested": (NESTED, spaces.MultiDiscrete([2, 3]), NetworkConfig(hidden_sizes=[9, 7], normalize_observations=True)),
    "one bound": (VECTOR, spaces.Box(-2, np.inf, (2,)), NetworkConfig(activation="silu")),
    "float64": (NESTED, spaces.Box(0, 1, (2,), np.float64), NetworkConfig(normalize_observations=True)),
    "image": (spaces.Dict(eye=IMAGE, at=VECTOR), spaces.Discrete(3), NetworkConfig(activation="relu")),
    "own convolutions": (IMAGE, spaces.Discrete(3), NetworkConfig(convolutions=[(4, 5, 2)], normalize_observations=True)),
    "frames": (spaces.Tuple([IMAGE, VECTOR]), spaces.Box(-1, 1, (2,)), NetworkConfig(frames=3)),
    "lstm": (VECTOR, spaces.Discrete(3), NetworkConfig(recurrent="lstm", recurrent_units=5, normalize_observations=True)),
    "gru": (
        spaces.Discrete(4),
        spaces.Discrete(3, start=2),
        NetworkConfig(recurrent="gru", recurrent_units=7, hidden_sizes=[]),
    ),
    "imitator": (VECTOR, spaces.Discrete(3), NetworkConfig(imitation_threshold=0.3, normalize_observations=True)),
    "imitator of images": (IMAGE, spaces.Discrete(3), NetworkConfig(imitation_threshold=0.5, hidden_sizes=[7])),
    "squashed": (VECTOR, spaces.Box(-3, 1, (2,)), NetworkConfig(squash=True)),
    "composite": (VECTOR, COMPOSITE, NetworkConfig(activation="gelu")),
    "squashed composite": (VECTOR, COMPOSITE, NetworkConfig(squash=True, activation="elu")),
    "own module": (VECTOR, spaces.Discrete(3), NetworkConfig(module="torch.nn:SixUnits")),
    "own module with tied weights": (VECTOR, spaces.Discrete(3), NetworkConfig(module="torch.nn:Tied")),
}


class SixUnits(torch.nn.Linear):
    def __init__(self, input_size: int, network: NetworkConfig) -> None:
        super().__init__(input_size, 6)


class Tied(torch.nn.Sequential):
    def __init__(self, input_size: int, network: NetworkConfig) -> None:
        super().__init__(torch.nn.Linear(input_size, input_size), torch.nn.Tanh(), torch.nn.Linear(input_size, input_size))
        self[2].weight = self[0].weight


def played(policy: Policy, seen: list[Any], starts: np.ndarray, *, explore: bool) -> list[Any]:
    state, generator, chosen = policy.initial_state(starts.shape[1]), torch.Generator().manual_seed(1), []
    for observations, start in zip(seen, starts, strict=True):
        step = policy.choose(observations, state.reset(start), explore=explore, generator=generator)
        assert step.state is not None
        state = step.state
        chosen.append((step.actions, step.extras))
    return chosen


@pytest.mark.parametrize(("kind", "share_layers"), [*((kind, False) for kind in KINDS), ("image", True), ("lstm", True)])
def test_every_kind_of_policy_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, share_layers: bool
) -> None:
    for own in (SixUnits, Tied):
        monkeypatch.setattr(torch.nn, own.__name__, own, raising=False)
    observation_space, action_space, network = KINDS[kind]
    network = network.model_copy(update={"share_layers": share_layers})
    policy = Policy(observation_space, action_space, network, value_function=True, seed=5)
    seen = [observed(observation_space, 6, seed=step) for step in range(5)]
    policy.encoder.update_statistics(as_tensors(seen[0]))
    save(policy, tmp_path)
    again = load_policy(str(tmp_path))
    starts = np.array([[1] * 6, [0] * 6, [0, 1] * 3, [0] * 6, [0] * 6], bool)
    for explore in (False, True):
        assert nested.equal(*(played(each, seen, starts, explore=explore) for each in (policy, again)))
    if not network.remembers:
        assert torch.equal(policy.values(as_tensors(seen[0])), again.values(as_tensors(seen[0])))
    assert (again.observation_space, again.action_space, again.network) == (observation_space, action_space, network)
    assert not again.training
    assert_is(tmp_path, policy)


def test_a_policy_whose_module_is_not_installed_here_is_told(tmp_path: Path) -> None:
    save(policy_with(), tmp_path)
    manifest = json.loads((tmp_path / "policy.json").read_text())
    change(tmp_path, network=manifest["network"] | {"module": "someones_package:Net"})
    with pytest.raises(CheckpointError, match=r"'someones_package:Net' cannot be imported"):
        load_policy(str(tmp_path), allow_code=True)


def test_a_checkpoint_from_before_there_were_images_and_memories_is_read(tmp_path: Path) -> None:
    save(policy_with(1), tmp_path)
    old = {"hidden_sizes": [8], "activation": "tanh", "share_layers": False, "normalize_observations": False}
    change(tmp_path, network=old)
    assert_is(tmp_path, policy_with(1))


def test_the_json_says_what_it_is_and_where_it_comes_from(tmp_path: Path) -> None:
    parent = Parent(kind="dataset", uri="/data/expert", version=3, fingerprint="abcd")
    environment = EnvironmentSpec(id="CartPole-v1", kwargs={"max_episode_steps": 7})
    save(policy_with(), tmp_path, environment=environment, parents=[parent], metrics={"episode_return_mean": 12.5})
    said = json.loads((tmp_path / "policy.json").read_text())
    assert EnvironmentSpec(**said["environment"]) == environment
    assert said["metrics"] == {"episode_return_mean": 12.5}
    assert said["operation"]["name"] == "made by a test" and said["operation"]["config"] == {"rate": 0.5}
    assert said["parents"] == [{"kind": "dataset", "uri": "/data/expert", "version": 3, "fingerprint": "abcd"}]
    assert said["provenance"]["torch"] == torch.__version__
    weights = (tmp_path / said["weights_file"]).read_bytes()
    assert said["weights_sha256"] == hashlib.sha256(weights).hexdigest()
    assert files(tmp_path) == {"policy.json", said["weights_file"]}


def test_the_manifest_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    """Also with what JSON has no numbers for."""
    environment = EnvironmentSpec(id="Some-v0", kwargs={"limit": math.inf})
    metrics = {"loss": math.nan, "best": -math.inf, "mean": 1.5}
    saved = save(policy_with(), tmp_path, environment=environment, metrics=metrics)
    found = read_policy_manifest(str(tmp_path))
    assert found.created_at.tzinfo is not None
    assert math.isnan(found.metrics["loss"])
    assert found.model_dump(exclude={"metrics"}) == saved.model_dump(exclude={"metrics"})
    assert {**found.metrics, "loss": 0.0} == {**metrics, "loss": 0.0}


def test_a_fingerprint_tells_weights_apart_and_nothing_else(tmp_path: Path) -> None:
    one = save(policy_with(1), tmp_path / "one", metrics={"a": 1.0})
    same = save(policy_with(1), tmp_path / "same")
    other = save(policy_with(2), tmp_path / "other")
    assert one.fingerprint == same.fingerprint != other.fingerprint
    entry = one.parent_entry(os.path.relpath(tmp_path / "one"))
    assert entry == Parent(kind="checkpoint", uri=str(tmp_path / "one"), fingerprint=one.fingerprint)


# ---- Replacing -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_replaced_and_nothing_of_the_old_one_stays(tmp_path: Path) -> None:
    save(policy_with(1), tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    manifest = save(policy_with(2), tmp_path)
    assert files(tmp_path) == {"policy.json", manifest.weights_file, "notes.txt"}
    assert_is(tmp_path, policy_with(2))


def test_saving_the_same_again_keeps_it(tmp_path: Path) -> None:
    save(policy_with(1), tmp_path)
    save(policy_with(1), tmp_path, metrics={"a": 2.0})
    assert_is(tmp_path, policy_with(1))
    assert read_policy_manifest(str(tmp_path)).metrics == {"a": 2.0}


@pytest.mark.parametrize("fails", ["weights", "policy.json"])
def test_a_crash_while_saving_leaves_the_old_policy_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    save(policy_with(1), tmp_path)
    write = Location.write

    def crash(self: Location, data: bytes) -> None:
        if os.path.basename(self.path).startswith(fails):
            raise StorageError(f"{self.uri}: the disk is full")
        write(self, data)

    with monkeypatch.context() as patched:
        patched.setattr(Location, "write", crash)
        with pytest.raises(StorageError, match="the disk is full"):
            save(policy_with(2), tmp_path)
    assert_is(tmp_path, policy_with(1))
    manifest = save(policy_with(3), tmp_path)  # what the crash left is cleared away
    assert files(tmp_path) == {"policy.json", manifest.weights_file}


def test_whoever_reads_while_it_is_replaced_finds_one_or_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(policy_with(1), tmp_path)
    write, found = Location.write, []

    def look(self: Location, data: bytes) -> None:
        write(self, data)
        found.append(load_policy(str(tmp_path)).state_dict()["hidden.0.weight"])

    monkeypatch.setattr(Location, "write", look)
    save(policy_with(2), tmp_path)
    old, new = (policy_with(seed).state_dict()["hidden.0.weight"] for seed in (1, 2))
    assert len(found) == 2
    assert torch.equal(found[0], old), "the weights were there before policy.json named them"
    assert torch.equal(found[1], new)


def test_a_policy_that_is_replaced_while_it_is_read_is_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(policy_with(1), tmp_path)
    read = checkpoint.read_policy_manifest

    def replaced(uri: str) -> PolicyManifest:
        manifest = read(uri)
        save(policy_with(2), tmp_path)
        return manifest

    for module in (checkpoint, manifests):
        monkeypatch.setattr(module, "read_policy_manifest", replaced)
    assert_is(tmp_path, policy_with(2))


def test_a_policy_that_is_replaced_each_time_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = itertools.count()
    save(policy_with(next(seeds)), tmp_path)
    read = checkpoint.read_policy_manifest

    def replaced(uri: str) -> PolicyManifest:
        manifest = read(uri)
        save(policy_with(next(seeds)), tmp_path)
        return manifest

    for module in (checkpoint, manifests):
        monkeypatch.setattr(module, "read_policy_manifest", replaced)
    with pytest.raises(CheckpointError, match="other policies replaced it while it was read"):
        load_policy(str(tmp_path))


def assert_is(folder: Path, policy: Policy) -> None:
    found = load_policy(str(folder)).state_dict()
    assert found.keys() == policy.state_dict().keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in policy.state_dict().items())


# ---- Damage ----------------------------------------------------------------------------------------------------------


def weights_file(folder: Path) -> Path:
    return next(folder.glob("weights-*.safetensors"))


def cut_short(folder: Path) -> None:
    path = weights_file(folder)
    path.write_bytes(path.read_bytes()[:-8])


def flip_a_bit(folder: Path) -> None:
    data = bytearray(weights_file(folder).read_bytes())
    data[-1] ^= 1
    weights_file(folder).write_bytes(bytes(data))


def put_in_other_weights(folder: Path, data: bytes) -> None:
    """As if they had been saved that way: the hash agrees."""
    weights_file(folder).write_bytes(data)
    change(folder, weights_sha256=hashlib.sha256(data).hexdigest())


def of_another_network(folder: Path, **how: Any) -> None:
    other = folder.parent / "other"
    save(policy_with(**how), other)
    put_in_other_weights(folder, weights_file(other).read_bytes())


def change(folder: Path, **fields: Any) -> None:
    edit_json(folder / "policy.json", **fields)


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "weights cut short": (cut_short, "damaged"),
    "a bit flipped": (flip_a_bit, "damaged"),
    "a bit of policy.json flipped": (lambda folder: flip_bit(folder / "policy.json", 8 * 60), "is not what was written"),
    "weights missing": (lambda folder: weights_file(folder).unlink(), "missing"),
    "weights are something else": (lambda folder: put_in_other_weights(folder, b"no tensors at all"), "do not fit"),
    "wider layers": (lambda folder: of_another_network(folder, hidden_sizes=(16,)), "do not fit"),
    "more layers": (lambda folder: of_another_network(folder, hidden_sizes=(8, 8)), "do not fit"),
    "other actions": (lambda folder: of_another_network(folder, actions=spaces.Box(-1, 1, (3,))), "do not fit"),
    "policy.json gone": (lambda folder: (folder / "policy.json").unlink(), "no policy"),
    "folder gone": (shutil.rmtree, "no policy"),
    "a file instead": (lambda folder: (shutil.rmtree(folder), folder.write_text("x")), "is a file, and a policy"),
    "policy.json empty": (lambda folder: (folder / "policy.json").write_text(""), "not a policy"),
    "policy.json no text": (lambda folder: (folder / "policy.json").write_bytes(b"\xff\xfe\x00"), "not a policy"),
    "policy.json of something else": (lambda folder: (folder / "policy.json").write_text('{"name": "x"}'), "not a policy"),
    "of a later version": (
        lambda folder: change(folder, checkpoint_version=2),
        "by a newer version of this package (format 2; this one reads 1): upgrade",
    ),
    "a space nobody knows": (lambda folder: change(folder, observation_space={"space": "hyperbolic"}), "hyperbolic"),
    "a space that cannot be acted in": (
        lambda folder: change(folder, action_space={"space": "tuple", "spaces": []}),
        "Tuple",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_wrong_is_said_with_the_place(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "policy"
    save(policy_with(), folder)
    load_policy(str(folder))
    do, says = DAMAGES[damage]
    do(folder)
    with pytest.raises(CheckpointError) as caught:
        load_policy(str(folder))
    assert str(folder) in str(caught.value)
    assert says in str(caught.value)


def test_unknown_fields_of_later_versions_do_not_hurt(tmp_path: Path) -> None:
    save(policy_with(1), tmp_path)
    change(tmp_path, license="CC0")
    assert_is(tmp_path, policy_with(1))


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=re.escape(str(tmp_path / "file"))):
        save(policy_with(), tmp_path / "file" / "policy")


# ---- What has to be there --------------------------------------------------------------------------------------------


def in_a_fresh_python(code: str, *arguments: str) -> list[str]:
    """What it prints, and those of the large packages that it has loaded."""
    code += "\nprint(*sorted({'ray', 'prefect', 'torch', 'matplotlib', 'onnx', 'polars'} & sys.modules.keys()))"
    command = [sys.executable, "-c", f"import sys, numpy\n{code}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_loading_and_acting_need_neither_ray_nor_prefect(tmp_path: Path) -> None:
    policy, seen = policy_with(7).eval(), np.array([[0.5, -0.5, 1.0, 0.25]], np.float32)
    save(policy, tmp_path)
    code = f"from {checkpoint.__name__} import load_policy\n"
    code += f"print(*load_policy(sys.argv[1]).act(numpy.array({seen.tolist()}, numpy.float32)))"
    assert in_a_fresh_python(code, str(tmp_path)) == [str(policy.act(seen)[0]), "torch"]
