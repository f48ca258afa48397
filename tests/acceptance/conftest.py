"""What tests of all points share: an excerpt of a recording by RLlib, a small recording of ours, and a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from offline_core.policies.recording.record import record
from offline_core.policies.recording.result import RecordingResult
from tests.acceptance.forms import SMALL, run_import
from tests.object_storage.conftest import bucket, s3_endpoint  # noqa: F401


@pytest.fixture(scope="session")
def recording(rllib_recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The place of 20 episodes of CartPole that RLlib recorded, imported, four episodes a file."""
    files = sorted((rllib_recordings / "cartpole_episodes").rglob("*.parquet"))[:20]
    rules = {"environment": {"id": "CartPole-v1"}, "files": {"max_rows_per_file": 4}}
    return run_import(files, tmp_path_factory.mktemp("seeds") / "rllib", **rules)[0].dataset.uri


@pytest.fixture(scope="session")
def recorded(cartpole_policy: str, tmp_path_factory: pytest.TempPathFactory) -> RecordingResult:
    """Two recorders in two rounds of ten complete episodes of CartPole, four episodes a file."""
    return record(SMALL, policy=cartpole_policy, output=str(tmp_path_factory.mktemp("seeds") / "recording"))


@pytest.fixture(scope="session")
def own_recording(recorded: RecordingResult) -> str:
    """The place of that recording."""
    return recorded.dataset.uri
