"""Exports: run by ONNX Runtime and Torch alone, they act as the policy does, on batches of any size."""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium import spaces

from offline_core.data.datasets.manifest import Operation, Parent
from offline_core.data.store.location import Location
from offline_core.errors import BusyError, CheckpointError, ConfigError
from offline_core.policies import export, export_work
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.export import export_policy
from offline_core.policies.export_config import ExportManifest, PolicyExportConfig, PolicyExportResult
from offline_core.policies.export_work import observations_like
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.policy import Policy, as_tensors
from offline_core.runtime.config import EnvironmentSpec
from tests.policies.sampling import observed

QUICK = PolicyExportConfig(latency_calls=3)
VECTOR = spaces.Box(-1, 1, (4,))
COMPOSITE = spaces.Dict(
    {
        "speed": spaces.Box(-np.inf, np.inf, (2,), np.float64),
        "gear": spaces.Discrete(5, start=-1),
        "hand": spaces.Tuple([spaces.MultiDiscrete([[2, 3]]), spaces.MultiBinary(3), spaces.Box(0, 3, (2, 2), np.uint8)]),
    }
)


def saved(policy: Policy, folder: Path, **more: Any) -> str:
    save_policy(policy, str(folder), operation=Operation(name="made by a test"), **more)
    return str(folder)


def exported(policy: Policy, tmp_path: Path, *formats: str) -> tuple[PolicyExportResult, ExportManifest]:
    """The policy, trained a bit: weights and filter are not what they began with."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters():
            scale = 1 / parameter[0].numel() ** 0.5 if parameter.ndim > 1 else 0.1
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    config = QUICK.model_copy(update={"formats": list(formats or ["onnx"])})
    result = export_policy(config, policy=saved(policy, tmp_path / "policy"), output=str(tmp_path / "out"))
    return result, ExportManifest.model_validate_json((tmp_path / "out" / "export.json").read_bytes())


@pytest.fixture
def written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that are nothing but the name of their format, for tests of what becomes of them."""

    def write(format: str, graph: export_work.Graph, example: object) -> tuple[bytes, export_work.Run]:
        return format.encode(), lambda batch: export_work._decide(graph.policy, batch)

    monkeypatch.setattr(export_work, "write", write)


def flat(value: Any, name: str = "obs") -> dict[str, np.ndarray]:
    """An independent idea of what the inputs are called."""
    if isinstance(value, dict | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {k: v for key, child in items for k, v in flat(child, f"{name}/{key}").items()}
    return {name: value}


def run_onnx(folder: Path, observations: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    session = onnxruntime.InferenceSession(folder / "policy.onnx", providers=["CPUExecutionProvider"])
    assert {i.name for i in session.get_inputs()} == observations.keys()
    assert all(i.shape[0] == "batch" for i in session.get_inputs())
    actions, inputs = session.run(["actions", "action_dist_inputs"], observations)
    return actions, inputs


def run_torch(folder: Path, observations: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    said = json.loads((folder / "export.json").read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Torch's own calls of what it deprecates
        module = torch.export.load(folder / "policy.pt2").module()
    actions, inputs = module(*(torch.from_numpy(observations[i["name"]]) for i in said["inputs"]))
    return actions.numpy(), inputs.numpy()


@pytest.mark.parametrize(
    ("observation_space", "action_space", "network"),
    [
        (VECTOR, spaces.Discrete(3, start=2), {}),
        pytest.param(COMPOSITE, spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [-2, 0]]), {}, marks=pytest.mark.slow),
        pytest.param(
            VECTOR, spaces.MultiBinary(3), {"activation": "gelu", "normalize_observations": False}, marks=pytest.mark.slow
        ),
        pytest.param(
            COMPOSITE, spaces.Box(np.array([-2.0, -np.inf]), np.array([3.0, 0.5]), dtype=np.float64), {}, marks=pytest.mark.slow
        ),
        pytest.param(
            spaces.Tuple([spaces.Box(0, 1, (), np.float16)]), spaces.Box(-1, 1, (2, 2), np.float16), {}, marks=pytest.mark.slow
        ),
        pytest.param(COMPOSITE, spaces.Box(-2, 5, (2,)), {"frames": 3, "squash": True}, marks=pytest.mark.slow),
        pytest.param(VECTOR, spaces.Discrete(4), {"imitation_threshold": 0.9}, marks=pytest.mark.slow),
        pytest.param(
            spaces.Box(0, 255, (16, 20, 3), np.uint8),
            spaces.Discrete(4),
            {"frames": 2, "normalize_observations": False, "convolution_padding": "same"},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["discrete", "multi-discrete", "multi-binary", "box", "half", "frames", "imitator", "images"],
)
def test_the_export_does_what_the_policy_does(
    tmp_path: Path, observation_space: gym.Space[Any], action_space: gym.Space[Any], network: dict[str, Any]
) -> None:
    defaults = {"hidden_sizes": [16, 8], "activation": "silu", "normalize_observations": True}
    policy = Policy(observation_space, action_space, NetworkConfig(**(defaults | network)), value_function=True).eval()
    policy.encoder.mean += 0.3
    policy.encoder.variance *= 4.0
    result, said = exported(policy, tmp_path, "onnx", "torch_export")
    frames = network.get("frames", 1)
    for run in (run_onnx, run_torch):
        for size in (1, 3, 200):
            observations = observed(observation_space, size, *([frames] if frames > 1 else []), seed=size)
            actions, inputs = run(tmp_path / "out", flat(observations))
            expected = policy(as_tensors(observations)).detach()
            np.testing.assert_allclose(inputs, expected, rtol=1e-5, atol=1e-5)
            likeliest = policy.head.to_env(policy.head.mode(expected))
            np.testing.assert_allclose(actions, likeliest, atol=1e-5 if actions.dtype.itemsize > 2 else 1e-3)
            assert actions.dtype == action_space.dtype
    assert len(np.unique(actions, axis=0)) > 1, "one action for all would prove little"
    assert [port.name for port in said.outputs] == ["actions", "action_dist_inputs"]
    assert said.outputs[0].dtype == np.dtype(action_space.dtype).name
    assert all(0 <= model.max_abs_difference < 1e-4 for model in result.models.values())


def test_the_manifest_says_all_that_is_needed(tmp_path: Path) -> None:
    policy = Policy(COMPOSITE, spaces.Discrete(3))
    environment = EnvironmentSpec(id="Car-v0", kwargs={"limit": np.inf})
    parent = Parent(kind="dataset", uri="/data/expert", version=3, fingerprint="abcd")
    checkpoint = saved(policy, tmp_path / "policy", environment=environment, parents=[parent], metrics={"loss": np.nan})
    result = export_policy(QUICK, policy=checkpoint, output=str(tmp_path / "out"))
    said = json.loads((tmp_path / "out" / "export.json").read_text())
    assert {(i["name"], i["dtype"], tuple(i["shape"])) for i in said["inputs"]} == {
        ("obs/speed", "float64", (2,)),
        ("obs/gear", "int64", ()),
        ("obs/hand/0", "int64", (1, 2)),
        ("obs/hand/1", "int8", (3,)),
        ("obs/hand/2", "uint8", (2, 2)),
    }
    assert [tuple(o.values()) for o in said["outputs"]] == [("actions", "int64", []), ("action_dist_inputs", "float32", [3])]
    assert said["policy"]["parents"] == [parent.model_dump()] and said["policy"]["environment"]["id"] == "Car-v0"
    assert said["checkpoint"]["kind"] == "checkpoint" and said["checkpoint"]["uri"] == checkpoint
    model = (tmp_path / "out" / said["models"]["onnx"]["file"]).read_bytes()
    assert hashlib.sha256(model).hexdigest() == said["models"]["onnx"]["sha256"]
    for latency in (said["policy_latency"], said["models"]["onnx"]["latency"]):
        assert latency.keys() == {"batch_1", "batch_64"}
        assert all(0 < entry["p50_microseconds"] <= entry["p99_microseconds"] for entry in latency.values())
    assert result.models["onnx"].bytes == len(model)
    assert b"site-packages" not in model and b"offline_core" not in model  # no local paths
    ExportManifest.model_validate(said)


def test_it_runs_without_torch_and_this_package(tmp_path: Path) -> None:
    policy = Policy(VECTOR, spaces.Discrete(4)).eval()
    exported(policy, tmp_path)
    code = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession("policy.onnx")
actions, _ = session.run(None, {"obs": numpy.full((2, 4), 0.5, numpy.float32)})
print(*actions, *sorted({"torch", "offline_core", "gymnasium"} & set(sys.modules)))
"""
    shown = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "out", capture_output=True, text=True, check=True)
    assert shown.stdout.split() == [str(action) for action in policy.act(np.full((2, 4), 0.5, np.float32))]


@pytest.mark.usefixtures("written_at_once")
def test_another_export_replaces_all_of_the_old_one(tmp_path: Path) -> None:
    _, first = exported(Policy(VECTOR, spaces.Discrete(3)), tmp_path, "torch_export", "onnx", "onnx")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    _, second = exported(Policy(VECTOR, spaces.Discrete(4)), tmp_path)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"policy.onnx", "export.json", "result.json", "notes.txt", ".lock"}
    assert first.models.keys() == {"torch_export", "onnx"} and second.models.keys() == {"onnx"}


# ---- Again, and two at once --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("written_at_once")
@pytest.mark.parametrize("name", ["policy.onnx", "export.json"])
def test_an_export_without_one_of_its_files_as_it_was_is_made_again(tmp_path: Path, name: str) -> None:
    checkpoint = saved(Policy(VECTOR, spaces.Discrete(2)), tmp_path / "policy")
    again = functools.partial(export_policy, QUICK, policy=checkpoint, output=str(tmp_path / "out"))
    first = again()
    assert again() == first.model_copy(update={"reused": True})
    for damage in (lambda file: file.write_bytes(file.read_bytes()[:-1]), Path.unlink):
        damage(tmp_path / "out" / name)
        assert not again().reused
        ExportManifest.model_validate_json((tmp_path / "out" / "export.json").read_bytes())
        assert again().reused


@pytest.mark.usefixtures("written_at_once")
def test_a_manifest_never_describes_models_of_another_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = saved(Policy(VECTOR, spaces.Discrete(2)), tmp_path / "policy")
    export_policy(QUICK, policy=checkpoint, output=str(tmp_path / "out"))
    write = Location.write

    def broken(location: Location, data: bytes) -> None:
        write(location, data)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Location, "write", broken)
        export_policy(QUICK.model_copy(update={"seed": 1}), policy=checkpoint, output=str(tmp_path / "out"))
    assert (tmp_path / "out" / "policy.onnx").exists() and not (tmp_path / "out" / "export.json").exists()
    assert not export_policy(QUICK, policy=checkpoint, output=str(tmp_path / "out")).reused


def test_a_policy_that_is_replaced_meanwhile_is_not_exported_as_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = saved(Policy(VECTOR, spaces.Discrete(2)), tmp_path / "policy")
    find = export.find_policy

    def replaced(policy: str) -> tuple[str, PolicyManifest]:
        found = find(policy)
        saved(Policy(VECTOR, spaces.Discrete(2), seed=1), tmp_path / "policy")
        return found

    monkeypatch.setattr(export, "find_policy", replaced)
    with pytest.raises(CheckpointError, match=r"The weights of policy .* are missing"):
        export_policy(QUICK, policy=checkpoint, output=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("written_at_once")
def test_of_two_at_once_one_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one, slower, finds what the first has made, or stops at its lock; then nothing of the two is mixed."""
    checkpoint = saved(Policy(VECTOR, spaces.Discrete(2)), tmp_path / "policy")
    run = functools.partial(export_policy, policy=checkpoint, output=str(tmp_path / "out"))
    load = export_work.load_policy
    first: list[PolicyExportResult] = []

    def meanwhile(policy: str, manifest: PolicyManifest) -> Policy:
        monkeypatch.setattr(export_work, "load_policy", load)
        first.append(run(QUICK))
        return load(policy, manifest)

    monkeypatch.setattr(export_work, "load_policy", meanwhile)
    assert run(QUICK) == first[0].model_copy(update={"reused": True})
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with (
        Location.of(str(tmp_path / "out")).locked(),
        pytest.raises(BusyError, match=r"Another run is writing to .*/out\. Wait"),
    ):
        run(QUICK.model_copy(update={"formats": ["torch_export"]}))
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


# ---- What cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("written_at_once")
def test_a_graph_that_does_something_else_is_refused_and_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = saved(Policy(VECTOR, spaces.Box(-1, 1, (2,))), tmp_path / "policy")
    write = export_work.write

    def off_by(change: Callable[[np.ndarray, np.ndarray], Any]) -> Callable[..., tuple[bytes, export_work.Run]]:
        def wrong(*arguments: Any) -> tuple[bytes, export_work.Run]:
            data, run = write(*arguments)
            return data, lambda observations: change(*run(observations))

        return wrong

    for change, message in [
        (lambda actions, inputs: (actions, inputs + np.float32(1e-3)), "action_dist_inputs differ by up to 0.001"),
        (lambda actions, inputs: (actions + np.float32(1e-3), inputs), "actions differ by up to 0.001"),
        (lambda actions, inputs: (actions, inputs * np.nan), "differ by up to nan"),
        (lambda actions, inputs: (actions[:1], inputs), r"actions are float32\(1, 2\)"),
    ]:
        monkeypatch.setattr(export_work, "write", off_by(change))
        with pytest.raises(ConfigError, match=message):
            export_policy(QUICK, policy=checkpoint, output=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = saved(Policy(VECTOR, spaces.Discrete(2)), tmp_path / "policy")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match=r"needs onnxruntime.*pip install -c constraints\.txt '\.\[onnx\]'"):
        export_policy(QUICK, policy=checkpoint, output=str(tmp_path / "out"))
    export_policy(QUICK.model_copy(update={"formats": ["torch_export"]}), policy=checkpoint, output=str(tmp_path / "out"))


def test_what_cannot_be_exported_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointError, match="no policy at"):
        export_policy(QUICK, policy=str(tmp_path / "none"), output=str(tmp_path / "out"))
    policy = Policy(VECTOR, spaces.Discrete(2))
    checkpoint = saved(policy, tmp_path / "policy")
    monkeypatch.setattr(Policy, "forward", lambda self, observations: self.head(self.hidden(observations[observations > 0])))
    with pytest.raises(ConfigError, match="cannot be exported as onnx"):
        export_policy(QUICK, policy=checkpoint, output=str(tmp_path / "out"))
    for space, network, message in [
        (spaces.Discrete(2), {"recurrent": "lstm"}, "recurrent policy"),
        (spaces.Dict({"arm": VECTOR, "grip": spaces.Discrete(2)}), {}, "Dict and Tuple actions"),
    ]:
        with pytest.raises(ConfigError, match=message):
            export_work.Graph(Policy(VECTOR, space, NetworkConfig(**network)), ["obs"])


def test_observations_are_drawn_where_somebody_could_observe_them() -> None:
    space = spaces.Box(np.array([-1, -3.4e38, 0], np.float32), np.array([1, 3.4e38, np.inf], np.float32))
    policy = Policy(space, spaces.Discrete(2))
    drawn = observations_like(policy, 1000, seed=0)["obs"]
    assert drawn.dtype == np.float32 and np.abs(drawn[:, 0]).max() <= 1 and drawn[:, 2].min() >= 0
    assert 0.9 < drawn[:, 1].std() < 1.1 and np.abs(drawn).max() < 20
    np.testing.assert_array_equal(drawn, observations_like(policy, 1000, seed=0)["obs"])
    assert not np.array_equal(drawn, observations_like(policy, 1000, seed=1)["obs"])
