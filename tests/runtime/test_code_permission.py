"""Code that a policy or dataset names is imported only if parameters here have named it, or it is allowed."""

from __future__ import annotations

import sys
from pathlib import Path

import gymnasium as gym
import pytest

from offline_core.data.datasets.manifest import Operation
from offline_core.errors import UnsafeDataError
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.evaluation import EvaluationConfig, evaluate
from offline_core.policies.manifest import POLICY_FILE
from offline_core.policies.policy import Policy
from offline_core.runtime.code_files import file_of
from offline_core.runtime.code_permission import check_code, recorded_environment, remember_code
from offline_core.runtime.config import EnvironmentSpec

MODULE = """
from pathlib import Path
import gymnasium as gym
from torch import nn

Path(__file__).with_name("ran").touch()
gym.registry.pop("Downloaded-v0", None)
gym.register("Downloaded-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=5)


class Net(nn.Module):
    def __init__(self, inputs, network):
        super().__init__()
        self.layer = nn.Linear(inputs, 8)

    def forward(self, x):
        return self.layer(x)
"""
SPACES = (gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in a package, in the folder one is in; importing either leaves the file `ran`."""
    name = f"downloaded_{abs(hash(str(tmp_path)))}"
    package = tmp_path / name
    package.mkdir()
    (package / "__init__.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n")
    (package / "code.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("OFFLINE_ALLOW_CODE", raising=False)
    return f"{name}.code"


def ran(module: str, folder: Path) -> bool:
    return module in sys.modules or (folder / module.partition(".")[0] / "ran").exists()


def policy_with(folder: Path, **changes: object) -> str:
    """A checkpoint whose JSON says more than it was saved with, as if it came from elsewhere."""
    manifest = save_policy(Policy(*SPACES), str(folder), operation=Operation(name="test"))
    (folder / POLICY_FILE).write_text(manifest.model_copy(update=changes).model_dump_json())
    return str(folder)


def test_the_module_of_a_network_is_not_imported(tmp_path: Path, module: str) -> None:
    policy = policy_with(tmp_path / "p", network=NetworkConfig(module=f"{module}:Net"))
    message = rf"p/policy\.json names '{module}:Net', .*allow_code=True or set the variable OFFLINE_ALLOW_CODE={module}\.$"
    with pytest.raises(UnsafeDataError, match=message):
        load_policy(policy)
    assert not ran(module, tmp_path)


def test_an_environment_of_a_policy_is_not_imported(tmp_path: Path, module: str) -> None:
    policy = policy_with(tmp_path / "p", environment=EnvironmentSpec(id=f"{module}:Downloaded-v0"))
    with pytest.raises(UnsafeDataError, match=rf"p names '{module}:Downloaded-v0', .*parameter environment\.id or set"):
        evaluate(EvaluationConfig(episodes=2), policy=policy)
    assert not ran(module, tmp_path)


@pytest.mark.parametrize("argument", ["shimmy:Env-v0", "/etc/passwd", "http://example.org/x.xml", "~/.netrc"])
def test_arguments_of_an_environment_lead_nowhere(module: str, argument: str) -> None:
    environment = EnvironmentSpec(id="Ant-v5", kwargs={"xml_file": argument})
    with pytest.raises(UnsafeDataError, match=argument):
        recorded_environment(environment, file="a dataset")
    remember_code(environment)
    assert recorded_environment(environment, file="a dataset") == environment
    assert recorded_environment(EnvironmentSpec(id="ALE/Pong-v5", kwargs={"max_episode_steps": 9}), file="a dataset")


def test_what_parameters_have_named_may_be_named_by_files(tmp_path: Path, module: str) -> None:
    environment = EnvironmentSpec(id=f"{module}:Downloaded-v0")
    remember_code(EvaluationConfig(environment=environment))
    assert not ran(module, tmp_path), "looked for without importing"
    result = evaluate(EvaluationConfig(episodes=2), policy=policy_with(tmp_path / "p", environment=environment))
    assert result.environment == environment.id


def test_another_file_of_the_same_name_is_another_code(tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remember_code(NetworkConfig(module=f"{module}:Net"))
    check_code(f"{module}:Net", file="a policy", instead="-")
    other = tmp_path / "other" / module.partition(".")[0]
    other.mkdir(parents=True)
    (other / "code.py").write_text(MODULE)
    (other / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(other.parent))
    with pytest.raises(UnsafeDataError):
        check_code(f"{module}:Net", file="a policy", instead="-")


def test_a_policy_saved_here_is_loaded_here(tmp_path: Path, module: str) -> None:
    policy = Policy(*SPACES, NetworkConfig(module=f"{module}:Net"))
    save_policy(policy, str(tmp_path / "p"), operation=Operation(name="test"))
    assert load_policy(str(tmp_path / "p")).network.module == f"{module}:Net"


@pytest.mark.parametrize("allowed", ["1", "{module}", "other, {package}"])
def test_allowed_by_a_variable_once(tmp_path: Path, module: str, allowed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_with(tmp_path / "p", environment=EnvironmentSpec(id=f"{module}:Downloaded-v0"))
    monkeypatch.setenv("OFFLINE_ALLOW_CODE", allowed.format(module=module, package=module.partition(".")[0]))
    evaluate(EvaluationConfig(episodes=2), policy=policy)
    monkeypatch.setenv("OFFLINE_ALLOW_CODE", "0, other")
    with pytest.raises(UnsafeDataError):
        evaluate(EvaluationConfig(episodes=3), policy=policy)


def test_allowed_by_an_argument(tmp_path: Path, module: str) -> None:
    policy = policy_with(tmp_path / "p", network=NetworkConfig(module=f"{module}:Net"))
    with pytest.raises(Exception, match="do not fit its network"):  # it was imported; the weights are another network's
        load_policy(policy, allow_code=True)
    assert ran(module, tmp_path)


def test_a_home_that_cannot_be_written(tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    remember_code(NetworkConfig(module=f"{module}:Net"))
    with pytest.raises(UnsafeDataError):
        check_code(f"{module}:Net", file="a policy", instead="-")


def test_files_of_modules(module: str, tmp_path: Path) -> None:
    assert file_of(module) == str(tmp_path / module.replace(".", "/")) + ".py"
    assert file_of("pathlib") and file_of("offline_core.policies.config") and file_of("xml.etree.ElementTree")
    assert file_of("no_such.module") is None and file_of("sys") is None and file_of("") is None and file_of("..x") is None
    assert not ran(module, tmp_path)
