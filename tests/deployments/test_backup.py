"""The commands of docs/operations.md, as they stand there: what was lost comes back, and the next run goes on with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.policies.recording.config import RecordingConfig
from offline_core.policies.recording.record import record
from tests.docs.blocks import blocks, commands
from tests.e2e.postgres import INSTALL, binary, postgres
from tests.waiting import PATIENCE_SECONDS

PAGE = "docs/operations.md"
ROOT = Path(__file__).parents[2]


def run(first_words: str, folder: Path, **variables: str) -> str:
    """Runs all commands of the one block of the page whose text begins so. Returns what they printed."""
    (block,) = (each for each in blocks(PAGE) if each.text.startswith(f"$ {first_words}"))
    assert list(commands(block))
    (folder / "bin").mkdir(exist_ok=True)
    offline = folder / "bin/offline"
    offline.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from flows.cli import main; main()" "$@"\n')
    offline.chmod(0o755)
    programs = [str(folder / "bin"), str(Path(sys.executable).parent), str(Path(binary("pg_dump") or "/usr/bin/x").parent)]
    environment = {
        **os.environ,
        **variables,
        "PATH": os.pathsep.join([*programs, os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
    }
    script = "".join(f"{line.removeprefix('$ ')}\n" for line in block.text.splitlines())
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_results_are_restored_verified_and_reused(tmp_path: Path, cartpole_policy: str) -> None:
    config = RecordingConfig(episodes=4, num_recorders=1)
    made = record(config, policy=cartpole_policy, output=str(tmp_path / "runs/recording"))
    shutil.copytree(cartpole_policy, tmp_path / "runs/policy")
    run("mkdir -p backup", tmp_path)
    shutil.rmtree(tmp_path / "runs")
    assert "2 versions" in (told := run("cp --archive backup/runs runs", tmp_path)) or "all as written" in told
    again = record(config, policy=cartpole_policy, output=str(tmp_path / "runs/recording"))
    with pytest.raises(AssertionError, match="File exists"):  # else a second backup would keep what changed since the first
        run("mkdir -p backup", tmp_path)
    assert again.reused and again.dataset.fingerprint == made.dataset.fingerprint
    assert (tmp_path / "runs/policy/policy.json").is_file()


@pytest.mark.slow
def test_a_version_that_the_backup_names_is_whole_though_another_is_committed_meanwhile(
    tmp_path: Path, cartpole_policy: str
) -> None:
    """Between the two copies: the second takes files alone, or files and a manifest, but never a manifest without its files."""
    (block,) = (each for each in blocks(PAGE) if each.text.startswith("$ mkdir -p backup"))
    make, manifests, files = (line.removeprefix("$ ") for line in block.text.splitlines())
    output = str(tmp_path / "runs/recording")
    record(RecordingConfig(episodes=2, num_recorders=1), policy=cartpole_policy, output=output)
    subprocess.run(["bash", "-ec", f"{make}\n{manifests}"], cwd=tmp_path, check=True)
    record(RecordingConfig(episodes=2, num_recorders=1, seed=1), policy=cartpole_policy, output=output)
    subprocess.run(["bash", "-ec", files], cwd=tmp_path, check=True)
    for version in (1, 2):
        assert all(Path(path).is_file() for path in open_dataset(str(tmp_path / "backup/runs/recording"), version).paths)


@pytest.mark.slow
def test_prefects_sqlite_database_is_copied_and_restored(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "backup").mkdir()
    subprocess.run(
        [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y"],
        env={
            **os.environ,
            "PREFECT_HOME": str(home),
            "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home}/prefect.db",
        },
        check=True,
        capture_output=True,
    )
    with sqlite3.connect(home / "prefect.db") as written:
        written.execute("INSERT INTO flow (name, id) VALUES ('kept', '7b0e4d0c-6ac4-4a6f-b4bd-6a2f7b5c1a11')")
    written.close()
    run("python -c", tmp_path, PREFECT_HOME=str(home))
    with contextlib.closing(sqlite3.connect(home / "prefect.db")) as killed:
        killed.execute("PRAGMA journal_mode = wal")
        killed.execute("DELETE FROM flow")
        killed.commit()
        left = {file: file.read_bytes() for file in home.glob("prefect.db-*")}
    for file, data in left.items():  # as a server that was killed leaves them
        file.write_bytes(data)
    assert left
    address = f"sqlite+aiosqlite:///{home}/prefect.db"
    run("rm -f", tmp_path, PREFECT_HOME=str(home), PREFECT_API_DATABASE_CONNECTION_URL=address)
    restored = sqlite3.connect(home / "prefect.db")
    assert restored.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert restored.execute("SELECT name FROM flow").fetchall() == [("kept",)]
    restored.close()


@pytest.mark.slow
@pytest.mark.skipif(binary("pg_dump") is None, reason=INSTALL)
def test_prefects_postgres_database_is_dumped_and_restored(tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    with postgres() as address:
        plain = address.replace("+asyncpg", "")
        prefect = {"PREFECT_API_DATABASE_CONNECTION_URL": address, "DATABASE": plain}

        def sql(text: str) -> str:
            asked = subprocess.run(
                [binary("psql") or "", "-qAt", plain, "-c", text], capture_output=True, text=True, check=True
            )
            return asked.stdout.strip()

        subprocess.run(
            [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y"],
            env={**os.environ, **prefect},
            check=True,
            capture_output=True,
        )
        sql("INSERT INTO flow (name) VALUES ('kept')")
        run("pg_dump", tmp_path, **prefect)
        sql("DELETE FROM flow")
        run("pg_restore", tmp_path, **prefect)
        assert sql("SELECT name FROM flow") == "kept"
