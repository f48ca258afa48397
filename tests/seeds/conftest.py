"""One small recording, made by real recorders, that the tests of all points share; and a bucket."""

from __future__ import annotations

import pytest

from offline_core.recording.record import record_episodes
from offline_core.recording.result import RecordingResult
from tests.object_storage.conftest import bucket, s3_endpoint  # noqa: F401
from tests.seeds.forms import SMALL


@pytest.fixture(scope="session")
def recorded(ray_up: None, cartpole_policy: str, tmp_path_factory: pytest.TempPathFactory) -> RecordingResult:
    """Two recorders in two rounds of ten complete episodes of CartPole, four episodes a file."""
    return record_episodes(SMALL, policy=cartpole_policy, output=str(tmp_path_factory.mktemp("seeds") / "recording"))


@pytest.fixture(scope="session")
def recording(recorded: RecordingResult) -> str:
    """The place of that recording."""
    return recorded.dataset.uri
