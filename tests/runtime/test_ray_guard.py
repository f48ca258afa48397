"""What Ray's process started ends with the run that started Ray, also where the run is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from offline_core.runtime.ray_watchdog import children_ended_with_this_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing is ended elsewhere")

PARENT = """
import subprocess, sys
for _ in range(2):
    subprocess.Popen(["sleep", "infinity"], start_new_session=True)
print("up", flush=True)
sys.stdin.read()
"""
"""As the raylet starts its agents."""
RUN = """
import subprocess, sys
from offline_core.runtime.ray_watchdog import children_ended_with_this_process

with children_ended_with_this_process(int(sys.argv[1])):
    print("guarded", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def raylet() -> Iterator[psutil.Process]:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        parent = psutil.Process(process.pid)
        children = parent.children()
        yield parent
        for child in children:
            if child.is_running():
                child.kill()


def test_of_a_run_that_is_killed_the_agents_end(raylet: psutil.Process) -> None:
    agents = raylet.children()
    command = [sys.executable, "-c", RUN, str(raylet.pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None and run.stdout.readline() == "guarded\n"
        [guard] = psutil.Process(run.pid).children()
        run.kill()
    guard.wait()
    assert len(agents) == 2
    assert not [agent for agent in agents if agent.is_running() and agent.status() != psutil.STATUS_ZOMBIE]


def test_a_guard_ends_with_its_block(raylet: psutil.Process) -> None:
    before = psutil.Process().children()
    with children_ended_with_this_process(raylet.pid):
        assert len(psutil.Process().children()) == len(before) + 1
    assert psutil.Process().children() == before


def test_no_raylet_no_guard() -> None:
    before = psutil.Process().children()
    with children_ended_with_this_process(None):
        assert psutil.Process().children() == before
