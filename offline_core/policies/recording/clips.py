"""Clips of recorded episodes: <dataset>/_clips/<version>/<eps_id>.mp4, or .gif.

The tasks of the recording are played again in environments that render: the same arguments give the same episodes.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.environments.vector_env import make_vector_env
from offline_core.data.episodes import columns
from offline_core.errors import ConfigError
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.policy import Policy
from offline_core.policies.recording.config import RecordingConfig, VideoConfig
from offline_core.policies.recording.player import EpisodesToPlay, Played, episodes_to_play
from offline_core.policies.recording.video import CLIPS, Film, new_film
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.progress import progress
from offline_core.runtime.torch_settings import torch_threads

log = logging.getLogger(__name__)

DEFAULT_FRAMES_PER_SECOND = 30.0
_WITHOUT_DEVICES = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
"""So that environments that draw by SDL need neither a screen nor a sound card."""


def check_renders(environment: EnvironmentSpec) -> None:
    """Render one picture, before anything is played.

    Raises:
        ConfigError: the environment does not render, or a package for that is missing.
    """
    with contextlib.closing(_rendering(environment, 1)) as env:
        env.reset(seed=0)
        try:
            picture = _pictures(env, [0])[0]
        except Exception as error:  # drivers and packages may raise anything
            raise ConfigError(
                f"Environment {environment.id!r} cannot be rendered: {error} Install what it needs, for most of gymnasium's in "
                "a checkout of this project: pip install -c constraints.txt '.[video]'; or leave out the parameter video."
            ) from error
    if picture is None or picture.ndim != 3 or picture.shape[2] != 3:
        raise ConfigError(
            f"Environment {environment.id!r} renders no (height, width, 3) pictures; leave out the parameter video."
        )


def make_clips(config: RecordingConfig, policy: str, manifest: PolicyManifest, dataset: Dataset) -> list[str]:
    """Write clips of the episodes that `config.video` names, and return their URIs; existing ones stay.

    An episode that does not come out as it was recorded has no clip, and a warning says so.

    Arguments:
        config: of the recording, with its environment and seed.
        policy: URI of the checkpoint.

    Raises:
        ConfigError: the environment does not render.
    """
    assert config.video is not None and config.environment is not None and config.seed is not None
    index = dataset.index()
    wanted = dict(_chosen(config.video, index[columns.EPS_ID].to_list(), index[columns.RETURN].to_numpy()))
    folder = dataset.location.child(f"{CLIPS}/{dataset.manifest.version:06d}")
    made = {name.rpartition(".")[0]: folder.child(name).uri for name in folder.files(recursive=False)}
    missing = {eps_id: value for eps_id, value in wanted.items() if eps_id not in made}
    if not missing:
        return [made[eps_id] for eps_id in wanted]
    check_renders(config.environment)
    player = load_policy(policy, manifest).eval()
    tasks = episodes_to_play(rounds=config.rounds, episodes=config.episodes, num_recorders=config.recorders)
    with torch_threads(1), progress(len(missing), what="clips", unit="clip") as bar:
        for task in tasks:
            if not missing:
                break
            for eps_id, film in _filmed(config, player, task, manifest.fingerprint, missing):
                del missing[eps_id]
                file = folder.child(f"{eps_id}{film.ending}")
                file.write(film.close())
                made[eps_id] = file.uri
                bar.update(1)
    for eps_id in missing:
        log.warning("%s: no clip of episode %s, which does not come out as it was recorded.", dataset.location.uri, eps_id)
    return [made[eps_id] for eps_id in wanted if eps_id in made]


def _chosen(video: VideoConfig, ids: Sequence[str], returns: np.ndarray) -> list[tuple[str, float]]:
    """(id, return) of the first, best and worst episodes."""
    order = np.argsort(returns, kind="stable").tolist()
    numbers = [*range(min(video.first, len(ids))), *order[::-1][: video.best], *order[: video.worst]]
    return [(ids[number], float(returns[number])) for number in dict.fromkeys(numbers)]


@dataclass(slots=True)
class _Take:
    """An episode that is being filmed."""

    eps_id: str
    film: Film
    rewards: list[float] = field(default_factory=list)


def _filmed(
    config: RecordingConfig, policy: Policy, task: EpisodesToPlay, identity: str, wanted: dict[str, float]
) -> list[tuple[str, Film]]:
    """Return (id, clip) of the wanted episodes of a task that come out as they were recorded."""
    assert config.environment is not None and config.seed is not None
    played = Played.of(
        config.environment, task, identity=identity, num_envs=config.envs_per_recorder, seed=config.seed, explore=config.explore
    )
    own = {
        (copy, k): name
        for copy in range(played.num_envs)
        for k in range(played.quota[copy])
        if (name := played.eps_id(copy, k)) in wanted
    }
    clips: list[tuple[str, Film]] = []
    if not own:
        return clips
    with contextlib.closing(_rendering(config.environment, played.num_envs)) as env:
        rate = float(env.metadata.get("render_fps") or DEFAULT_FRAMES_PER_SECOND)
        loop = played.loop(env, policy, with_extras=config.keep_action_distribution)
        finished = [0] * played.num_envs
        takes = {copy: _Take(own.pop((copy, 0)), new_film(rate)) for copy in range(played.num_envs) if (copy, 0) in own}
        _shoot(env, takes)
        while (own or takes) and not loop.is_over:
            step = next(loop)
            for copy in np.flatnonzero(~step.counts).tolist():  # which was reset: the next episode begins
                if (copy, finished[copy]) in own:
                    takes[copy] = _Take(own.pop((copy, finished[copy])), new_film(rate))
            _shoot(env, takes)
            for copy in np.flatnonzero(step.counts).tolist():
                if copy in takes:
                    takes[copy].rewards.append(float(step.rewards[copy]))
            for copy in np.flatnonzero(step.ends).tolist():
                finished[copy] += 1
                take = takes.pop(copy, None)
                if take and np.isclose(sum(take.rewards), wanted[take.eps_id], rtol=1e-5, equal_nan=True):
                    clips.append((take.eps_id, take.film))
    return clips


def _shoot(env: VectorEnv, takes: dict[int, _Take]) -> None:
    if takes:
        for take, picture in zip(takes.values(), _pictures(env, [*takes]), strict=True):
            take.film.add(np.asarray(picture))


def _rendering(environment: EnvironmentSpec, num_envs: int) -> VectorEnv:
    for name, value in _WITHOUT_DEVICES.items():
        os.environ.setdefault(name, value)
    rendering = environment.model_copy(update={"kwargs": {**environment.kwargs, "render_mode": "rgb_array"}})
    return make_vector_env(rendering, num_envs)


def _pictures(env: VectorEnv, copies: Sequence[int]) -> list[np.ndarray]:
    """What these copies look like; the others are not rendered where that can be."""
    whole = env.unwrapped
    if isinstance(whole, SyncVectorEnv):
        return [whole.envs[copy].render() for copy in copies]  # type: ignore[misc]
    pictures: Any = env.render()
    return [pictures[copy] for copy in copies]
