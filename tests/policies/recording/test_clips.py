"""Clips: of the very episodes that were recorded, found again, refused before anything is played."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from PIL import Image

import offline_core as offline
from offline_core.errors import ConfigError
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.train import train_expert
from offline_core.learning.trainer_config import EvaluationsConfig
from offline_core.policies.recording import video
from offline_core.runtime.config import EnvironmentSpec

pytest.importorskip("pygame")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    config = ExpertConfig(total_steps=2000, num_envs=8, evaluation=EvaluationsConfig(target_return=10, episodes=5))
    return train_expert(config, output=str(tmp_path_factory.mktemp("expert"))).checkpoint


def test_clips_have_a_frame_an_observation_and_leave_the_recording_alone(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offline_core.policies.recording.clips.new_film", video.Gif)
    shape = {"episodes": 12, "envs_per_recorder": 2}
    plain = offline.record(policy, output=tmp_path / "plain", **shape)
    filmed = offline.record(policy, output=tmp_path / "filmed", video={"first": 1, "best": 1, "worst": 2}, **shape)
    assert filmed.ref.fingerprint == plain.ref.fingerprint
    lengths = dict(filmed.table().select("eps_id", "length").iter_rows())
    returns = dict(filmed.table().select("eps_id", "return").iter_rows())
    frames = {}
    for clip in filmed.result.clips:
        with Image.open(io.BytesIO(Path(clip).read_bytes())) as image:
            image.load()
            frames[Path(clip).stem] = getattr(image, "n_frames", 1)
    assert max(returns, key=returns.__getitem__) in frames and min(returns, key=returns.__getitem__) in frames
    assert all(0 < count <= lengths[eps_id] + 1 for eps_id, count in frames.items())  # GIFs merge equal frames
    again = offline.record(policy, output=tmp_path / "filmed", video={"first": 1, "best": 1, "worst": 2}, **shape)
    assert again.result.reused and again.result.clips == filmed.result.clips

    result = offline.report(tmp_path)
    assert result.episodes_with_steps == 24 and b"data:image/gif" in (tmp_path / "report.html").read_bytes()


def test_mp4_is_what_browsers_play() -> None:
    pytest.importorskip("imageio_ffmpeg")
    film = video.new_film(30)
    for shade in range(4):
        film.add(np.full((33, 48, 3), 60 * shade, np.uint8))
    assert film.ending == ".mp4" and b"ftyp" in film.close()[:16]


def test_what_cannot_be_rendered_is_refused_before_anything_is_played(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CartPoleVectorEnv, "render", lambda self: [None])
    unseen = EnvironmentSpec(id="CartPole-v1")
    with pytest.raises(ConfigError, match="leave out the parameter video"):
        offline.record(policy, output=tmp_path / "dark", environment=unseen, video={"first": 1})
    assert not (tmp_path / "dark").exists()
