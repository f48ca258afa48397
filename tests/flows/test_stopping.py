"""A process that is told to stop twice."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, time
from flows.stopping import Stopping
stopping = Stopping()
def rest():  # in short calls: a signal that arrives just before a long one is handled after it
    while True:
        time.sleep(0.05)
try:
    print("at work", flush=True)
    rest()
finally:
    if "sent again" in sys.argv:  # as Prefect does, with the handler from before
        signal.signal(signal.SIGTERM, stopping._exit)
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except SystemExit:
            pass
    print("cleaning up", flush=True)
    try:
        time.sleep(0.05) if "sent again" in sys.argv else rest()
    finally:
        print("clean", flush=True)
        "sent again" in sys.argv or rest()
"""


def begun(*arguments: str, program: str = PROGRAM) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "at work\n"
    return process


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(first: signal.Signals) -> None:
    process = begun()
    process.send_signal(first)
    assert process.stdout is not None and process.stdout.readline() == "cleaning up\n"
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate()
    assert process.returncode == 128 + first
    assert errors.splitlines()[-1].startswith("Stopped at once, by a second signal.")
    assert "clean\n" not in output


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_is_handled_in_a_callback_of_the_garbage_collector_is_not_lost(first: signal.Signals) -> None:
    program = f"""
import signal, sys, time, weakref
from flows.stopping import Stopping
stopping = Stopping()
class Thing:
    pass
thing = Thing()
told = weakref.ref(thing, lambda _: signal.raise_signal({int(first)}))
print("at work", flush=True)
try:
    del thing
    while True:
        time.sleep(0.05)
finally:
    print("clean", flush=True)
"""
    output, errors = begun(program=program).communicate()
    assert output == "clean\n"
    assert "ignored" not in errors and "Stopped at once" not in errors


def test_the_signal_that_prefect_sends_again_is_no_second_one() -> None:
    own = "stopping = Stopping()\ndef raises(number, frame):\n    raise SystemExit(128 + number)\n"
    program = PROGRAM.replace("stopping = Stopping()\n", f"{own}signal.signal(signal.SIGTERM, raises)\n")
    process = begun("sent again", program=program)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate()
    assert (process.returncode, output) == (143, "cleaning up\nclean\n"), errors
