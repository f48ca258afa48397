"""Questions of an import on a real terminal."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import polars as pl
import yaml


def test_ctrl_c_at_a_question_keeps_the_answers_so_far(tmp_path: Path) -> None:
    """Polars makes the system read on after a signal, so that Python would not get to see it before the line ends."""
    rows = range(40)
    pl.DataFrame({"day": [n // 20 for n in rows], "step": [n % 20 for n in rows], "x": rows, "y": rows}).write_csv(
        tmp_path / "log.csv"
    )
    command = [str(Path(sys.executable).with_name("offline")), "import", "log.csv", "--ask", "-o", "out"]
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execv(command[0], command)
    said, answers = b"", [b"y\n", b"\x03"]
    try:
        while part := os.read(terminal, 4096):
            said += part
            if answers and said.count(b"Yours") == 3 - len(answers):
                os.write(terminal, answers.pop(0))
    except OSError:  # the terminal is closed with the process
        pass
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 130, said.decode()
    assert "The answers so far are in" in said.decode()
    assert yaml.safe_load((tmp_path / "out.yaml").read_text())["mapping"]["actions"] == "y"
