"""Stable-Baselines3's side of `benchmarks.reference_experts`; runs by itself in an environment with stable-baselines3.

python sb3_side.py ENVIRONMENT SEED STEPS SETTINGS_AS_JSON
"""

import json
import sys
import time

import gymnasium as gym
import numpy as np
import torch
from playing import returns
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize


def main():
    environment, seed, steps, settings = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    torch.set_num_threads(1)
    env = DummyVecEnv([lambda: gym.make(environment)] * settings["num_envs"])
    if settings["normalize"]:
        env = VecNormalize(env, gamma=settings["gamma"])
    rate = settings["learning_rate"]
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=settings["rollout_steps"],
        batch_size=settings["minibatch_size"],
        n_epochs=settings["num_epochs"],
        gamma=settings["gamma"],
        gae_lambda=settings["gae_lambda"],
        learning_rate=lambda left: rate * left,
        clip_range=0.2,
        clip_range_vf=settings["value_clip_range"],
        vf_coef=settings["value_coefficient"],
        device="cpu",
        seed=seed,
    )
    begin, cpu = time.perf_counter(), time.process_time()
    model.learn(steps)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu

    def act(observations):
        seen = env.normalize_obs(observations.astype(np.float32)) if settings["normalize"] else observations
        actions, _ = model.predict(seen, deterministic=True)
        return actions

    print(
        json.dumps(
            {"returns": returns(environment, act, 10), "seconds": seconds, "cpu_seconds": cpu, "steps": model.num_timesteps}
        )
    )


if __name__ == "__main__":
    main()
