"""Fixtures that several rooms share. Nothing here starts Ray or Prefect unless a test asks for it."""

from __future__ import annotations

import contextlib
import math
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from tests.cases import examples

# The same examples in every run, however busy the machine: few by 'make test', all by 'make test-all' (whole); 'explore' tries
# others each time.
_SAME = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], derandomize=True, database=None
)
hypothesis.settings.register_profile("quick", _SAME, max_examples=examples(100))
hypothesis.settings.register_profile("whole", _SAME)
hypothesis.settings.register_profile("explore", _SAME, derandomize=False)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
os.environ["OMP_NUM_THREADS"] = "1"  # small networks, and others may want the second core
os.environ.setdefault("OFFLINE_RAY_CPUS", str(min(4, max(2, os.cpu_count() or 1))))  # each may start a worker of 200 MB
os.environ["DO_NOT_TRACK"] = "1"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"  # read at import; asks Google itself, whatever server is meant
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="offline-tests-state-")  # which code parameters have named
os.environ["OFFLINE_ALLOW_CODE"] = "tests"  # environments of tests, which their checkpoints and datasets name
os.environ.pop("RAY_ADDRESS", None)
os.environ.pop("PREFECT_API_URL", None)

RECORDINGS = Path(__file__).parent / "data" / "rllib"


@pytest.fixture(scope="session")
def rllib_recordings() -> Path:
    """The folder of recordings made by RLlib itself."""
    return RECORDINGS


_shared_ray = contextlib.ExitStack()


SERVICES = {"ray_up": "shared Ray", "prefect_server": "shared Ray", "s3_endpoint": "S3"}
"""Fixtures that take seconds to start, and the group of the tests that use them: one worker starts each of them."""


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each file to one worker, where its tests share fixtures, and all tests of a service to one.

    These begin at once, for they take longest: first those with the shared Ray, as others are seen starting and ending one
    of their own; then those with a Prefect server, on the same worker, for some need both; then those with S3.
    """
    for item in items:
        if "ray_up" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.shared_ray)
        service = _service_of(item)
        item.add_marker(pytest.mark.xdist_group(SERVICES[service] if service else item.path.as_posix()))
    turns = [*SERVICES, None]
    items.sort(key=lambda item: turns.index(_service_of(item)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """See that xdist will keep each group on one worker: a version of pytest that it does not know lets it forget them."""
    if hasattr(session.config, "workerinput") and session.config.getoption("loadgroup", False):
        assert all("@" in item.nodeid for item in session.items), "pytest-xdist has not taken the groups of the tests"


def _service_of(item: pytest.Item) -> str | None:
    """The first of the services that a test needs."""
    if item.get_closest_marker("shared_ray"):
        return "ray_up"
    return next((name for name in SERVICES if name in getattr(item, "fixturenames", ())), None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """End the shared Ray before the first test without it."""
    seed_global_generators()
    if item.get_closest_marker("shared_ray") is None:
        _shared_ray.close()


def pytest_runtest_call() -> None:
    seed_global_generators()


def seed_global_generators() -> None:
    """Give the generators of Python, NumPy and Torch the same state before each test and before its fixtures.

    Libraries draw from them (RLlib shuffles by NumPy's): what a test sees must not depend on the tests before it.
    """
    import torch  # a new process seeds its generator from the system's entropy

    random.seed(0)
    np.random.seed(0)
    if torch.cuda.is_available():
        torch.manual_seed(0)
    else:
        torch.default_generator.manual_seed(0)  # the other notes a stack for each device there might be: some 20 s in all


@pytest.fixture(scope="session", autouse=True)
def no_ray_by_chance() -> Iterator[None]:
    """Evaluations and recordings stay in this process however long they take: on a busy machine each would start a Ray."""
    from offline_core.learning import evaluations
    from offline_core.policies.recording import work

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluations, "QUICK_SECONDS", math.inf)
        patch.setattr(work, "RAY_START_SECONDS", math.inf)
        yield


@pytest.fixture(scope="session")
def ray_up() -> Iterator[None]:
    """One Ray for all tests that need one."""
    from offline_core.runtime.ray_session import ray_session

    with _shared_ray:
        _shared_ray.enter_context(ray_session())
        yield


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Prefect server of the session's own, thrown away afterwards; flows called in this process report to it."""
    from prefect.settings import PREFECT_LOCAL_STORAGE_PATH, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    storage = tmp_path_factory.mktemp("prefect-storage")
    with prefect_test_harness(server_startup_timeout=180), temporary_settings({PREFECT_LOCAL_STORAGE_PATH: storage}):
        yield


@pytest.fixture(scope="session")
def cartpole_policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint of an untrained policy for CartPole."""
    return _untrained(tmp_path_factory, "CartPole-v1")


@pytest.fixture(scope="session")
def pendulum_policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint of an untrained policy for Pendulum."""
    return _untrained(tmp_path_factory, "Pendulum-v1")


def _untrained(tmp_path_factory: pytest.TempPathFactory, env_id: str) -> str:
    from offline_core.data.datasets.manifest import Operation
    from offline_core.data.environments.vector_env import spaces_of
    from offline_core.policies.checkpoint import save_policy
    from offline_core.policies.policy import Policy
    from offline_core.runtime.config import EnvironmentSpec

    environment = EnvironmentSpec(id=env_id)
    uri = str(tmp_path_factory.mktemp("policy"))
    save_policy(Policy(*spaces_of(environment)), uri, operation=Operation(name="untrained"), environment=environment)
    return uri
