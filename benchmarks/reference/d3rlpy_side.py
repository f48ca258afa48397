"""d3rlpy's side of a cell; runs by itself in an environment with d3rlpy: `python d3rlpy_side.py ORDER.json`."""

import json
import logging
import sys
import time
from pathlib import Path

import d3rlpy
import h5py
import numpy as np
import torch
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy.optimizers import AdamFactory
from d3rlpy.optimizers.lr_schedulers import CosineAnnealingLRFactory
from d3rlpy.preprocessing import ReturnBasedRewardScaler, StandardObservationScaler
from playing import returns


def algorithm_of(name, settings, updates, discrete):
    algos, rates = d3rlpy.algos, settings["rates"]
    hidden = VectorEncoderFactory(settings["hidden"])
    common = {"batch_size": settings["batch"]}
    if settings.get("normalize"):
        common["observation_scaler"] = StandardObservationScaler()
    if settings.get("scale_rewards"):
        common["reward_scaler"] = ReturnBasedRewardScaler(multiplier=1000.0)
    if name == "bc" and discrete:
        return algos.DiscreteBCConfig(**common, encoder_factory=hidden, learning_rate=rates["policy"], beta=0.0)
    if name == "bc":
        return algos.BCConfig(**common, encoder_factory=hidden, learning_rate=rates["policy"])
    if name == "dcql":
        return algos.DiscreteCQLConfig(
            **common,
            encoder_factory=hidden,
            learning_rate=rates["critics"],
            target_update_interval=settings["target_interval"],
            alpha=settings["alpha"],
        )
    common |= {"actor_learning_rate": rates["policy"], "critic_learning_rate": rates["critics"]}
    common |= {"actor_encoder_factory": hidden, "critic_encoder_factory": hidden}
    if name == "td3_bc":
        return algos.TD3PlusBCConfig(**common, alpha=settings["alpha"])
    if name == "iql":
        falling = AdamFactory(lr_scheduler_factory=CosineAnnealingLRFactory(T_max=updates))
        return algos.IQLConfig(**common, value_encoder_factory=hidden, actor_optim_factory=falling)
    if name == "cql":
        return algos.CQLConfig(
            **common,
            conservative_weight=settings["alpha"],
            alpha_learning_rate=0.0,
            temp_learning_rate=rates["critics"],
        )
    common["critic_encoder_factory"] = VectorEncoderFactory(settings["hidden"], use_layer_norm=True)
    return algos.ReBRACConfig(**common, actor_beta=settings["policy_penalty"], critic_beta=settings["critic_penalty"])


def episodes_of(path, discrete):
    with h5py.File(path) as file:
        for number in range(len(file)):
            group = file[f"episode_{number}"]
            actions = np.asarray(group["actions"])
            yield d3rlpy.dataset.Episode(
                observations=np.asarray(group["observations"][:-1], np.float32),
                actions=actions.reshape(-1, 1) if discrete else actions.astype(np.float32),
                rewards=np.asarray(group["rewards"], np.float32).reshape(-1, 1),
                terminated=bool(group["terminations"][-1]),
            )


def main():
    order = json.loads(Path(sys.argv[1]).read_text())
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    d3rlpy.seed(order["seed"])
    episodes = list(episodes_of(order["minari"], order["discrete"]))
    begin, cpu = time.perf_counter(), time.process_time()
    buffer = d3rlpy.dataset.create_infinite_replay_buffer(episodes)
    algorithm = algorithm_of(order["algorithm"], order["settings"], order["updates"], order["discrete"]).create(device="cpu:0")
    algorithm.fit(
        buffer,
        n_steps=order["updates"],
        n_steps_per_epoch=order["updates"],
        show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    episode_returns = returns(
        order["environment"], lambda observations: algorithm.predict(observations.astype(np.float32)), order["episodes"]
    )
    print(json.dumps({"returns": episode_returns, "seconds": seconds, "cpu_seconds": cpu, "updates": order["updates"]}))


if __name__ == "__main__":
    main()
