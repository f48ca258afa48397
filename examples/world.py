"""Make the data that the commands of the documentation's pages are about: `runs/` and `data/` in a folder.

    python -m examples.world            # here, in the checkout: some 20 seconds
    python -m examples.world elsewhere

`runs/` has an expert, recordings, a policy and imports; `data/` has files as others make them: RLlib's, d3rlpy's, Minari's,
LeRobot's, a replay buffer of Stable-Baselines3, tables with other names, a robot, a building. The tests of the pages run in
such a folder.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import numpy as np
import polars as pl

import offline_core as offline

EPISODES = 20


def make_world(folder: Path) -> Path:
    """`runs/` as after `make demo` and the quick start, and `data/` of other people's below `folder`."""
    runs = folder / "runs"
    expert = offline.train_expert("CartPole-v1", output=runs / "expert")
    recording = offline.record(expert, episodes=EPISODES, output=runs / "recording")
    offline.train(recording, output=runs / "policy")
    offline.convert(recording, format="table", output=runs / "table")
    shutil.copytree(runs / "recording", runs / "pruned")
    for stage in ("expert", "recording", "pruned", "policy"):
        shutil.copytree(runs / stage, runs / "demo" / stage)
    offline.record(expert, episodes=EPISODES, seed=1, output=runs / "others")
    _of_other_people(folder)
    _of_other_libraries(recording, folder / "data")
    for source, output in (("episodes", "imported"), ("others", "b")):
        offline.import_data(folder / "data" / source, environment={"id": "CartPole-v1"}, output=runs / output)
    return folder


def _of_other_people(folder: Path) -> None:
    """Files with no manifest beside them, by other names and in other forms."""
    data = folder / "data"
    for dataset, name in (("recording", "episodes"), ("table", "table"), ("others", "others")):
        (data / name).mkdir(parents=True)
        for path in offline.open_dataset(f"{folder}/runs/{dataset}").paths:
            shutil.copy(path, data / name)
    steps = pl.read_parquet(f"{data}/table/*.parquet")
    games = {eps_id: f"game-{number:03d}" for number, eps_id in enumerate(steps["eps_id"].unique(maintain_order=True))}
    theirs = steps.select(
        pl.col("eps_id").replace_strict(games),  # the same on each machine, and so is the side of a split by id
        "t",
        o_t="obs",
        a_t="actions",
        r_t="rewards",
        o_tp1="new_obs",
        d_t="terminateds",
        logprobs_t="action_logp",
        i_t=pl.struct(wind=pl.col("t") % 3),
    )
    frames = np.arange(300)
    observed, done = np.random.default_rng(0).normal(size=(300, 3)), np.random.default_rng(1).uniform(-0.5, 0.5, (300, 2))
    robot = {"episode_index": frames // 100, "frame": frames % 100, "observation.state": observed.astype(np.float32)}
    pl.DataFrame(robot | {"action": done.astype(np.float32), "reward": np.ones(300)}).write_parquet(data / "robot.parquet")
    _of_a_building(data)
    for name in ("2026-01/a", "2026-02/b"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
    ids = [*games.values()]
    for name, part in (("2026-01/a", ids[:8]), ("2026-02/b", ids[8:16]), ("old", ids[16:])):
        theirs.filter(pl.col("eps_id").is_in(part)).write_parquet(data / f"{name}.parquet")


def _of_other_libraries(recording: offline.Dataset, data: Path) -> None:
    """The recording as Minari, LeRobot and d3rlpy store it, and a replay buffer whose actions are scaled to [-1, 1]."""
    offline.export(recording, format="minari", output=data / "minari", arguments={"dataset_id": "cartpole/expert-v0"})
    offline.export(recording, format="lerobot", output=data / "lerobot", arguments={"fps": 50, "task": "balance"})
    with h5py.File(data / "d3rlpy.h5", "w") as file:
        file["columns"] = ["observations", "actions", "rewards", "terminated"]
        file["num_episodes"] = EPISODES
        for number, episode in enumerate(recording.episodes()):
            file[f"observations_{number}"] = episode.observations[:-1]
            file[f"actions_{number}"] = episode.actions[:, None]
            file[f"rewards_{number}"] = episode.rewards[:, None]
            file[f"terminated_{number}"] = episode.terminated
    environment = gym.make("Pendulum-v1")
    rng, steps = np.random.default_rng(0), []
    for number in range(2):
        observation, _ = environment.reset(seed=number)
        is_over = False
        while not is_over:
            action = rng.uniform(-1, 1, 1).astype(np.float32)
            following, reward, terminated, is_over, _ = environment.step(2 * action)
            steps.append((observation, action, np.float32(reward), following, float(terminated), float(is_over)))
            observation = following
    names = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    arrays: dict[str, Any] = {name: np.stack(each) for name, each in zip(names, zip(*steps, strict=True), strict=True)}
    np.savez(data / "sb3.npz", **arrays)


def _of_a_building(data: Path) -> None:
    """Two rooms' days, a file each, and prices in another file."""
    hours = range(24)
    for number, room in enumerate(("north", "south")):
        (data / "building" / room).mkdir(parents=True)
        sensors = [{"tin": None if hour == 3 else 18.0 + (hour + number) % 6, "tout": hour / 4} for hour in hours]
        rows = {
            "time": [f"2026-01-31 {hour:02d}:30:00" for hour in hours],
            "sensors": sensors,
            "mode": [("heat", "off")[hour % 2] for hour in hours],
            "energy": [0.5 * (hour % 2) for hour in hours],
            "setpoint": [16 + 2 * (hour % 4) + 0.1 for hour in hours],
        }
        pl.DataFrame(rows).write_ndjson(data / "building" / room / "2026-01-31.ndjson")
    prices = {"time": [f"2026-01-31 {hour:02d}:00:00" for hour in hours], "price": [0.2 + 0.01 * hour for hour in hours]}
    pl.DataFrame(prices).write_csv(data / "prices.csv")


if __name__ == "__main__":
    make_world(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
