"""RLlib, as its document "Working with offline data" has it, with the least that makes it run on 2.60 (`CHANGES`)."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.vs_rllib.task import COUNTED_SECONDS, COUNTED_UPDATES, ENVIRONMENT, Clock, Task, play, run

CHANGES = (
    "Ray is started with 8 CPUs, however many there are: with the 2 of a small machine, the document's actors (7 for the "
    "recording) would wait for ever. Its dashboard and the actors' output are off.",
    "`ray.tune.RunConfig` and `CheckpointConfig` instead of `ray.train`'s, which Tune no longer takes, and a storage path.",
    "The expert stops at the mean return of its sampled episodes, as the document's current code does: the metric of an "
    "evaluation, which the older text names, never appears, for no evaluation is configured.",
    "The recorder restores the module by its whole path within the checkpoint. The document's call, "
    '`restore_from_path(best_checkpoint, component="rl_module")`, loads nothing and says nothing on 2.60: what it records '
    "is an untrained policy, with a mean return of about 20.",
    "Paths of recordings are absolute; those of converted episodes are in the benchmark's folder.",
    "The conversion's `prefetch_batches=10` is left out, which `iter_rows` no longer takes, and the observations are unpacked, "
    "for the document's recording writes them packed (`output_compress_columns` has them by default).",
    "MARWIL has no example of its own: its configuration is that of BC.",
)
"""How what runs here differs from the document."""
LOGICAL_CPUS = 8
EVALUATE_CALLS = 10


def start(clock: Clock) -> None:
    """Imports what every stage needs, and starts Ray."""
    with clock("imports"):
        import ray
        import ray.rllib
        from ray import data, tune  # noqa: F401
    with clock("ray"):
        ray.init(
            address="local",
            num_cpus=max(LOGICAL_CPUS, os.cpu_count() or 1),
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )


def expert(task: Task, clock: Clock) -> dict[str, Any]:
    """ "Example: Training an Expert Policy"."""
    start(clock)
    from ray import tune
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, EPISODE_RETURN_MEAN

    with clock("stage"):
        config = (
            PPOConfig()
            .environment(ENVIRONMENT)
            .training(lr=0.0003, num_epochs=6, vf_loss_coeff=0.01)
            .rl_module(model_config=expert_model())
        )
        metric = f"{ENV_RUNNER_RESULTS}/{EPISODE_RETURN_MEAN}"
        tuner = tune.Tuner(
            "PPO",
            param_space=config,
            run_config=tune.RunConfig(
                stop={metric: task.target_return},
                name="docs_rllib_offline_pretrain_ppo",
                storage_path=task.output,
                verbose=2,
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1, checkpoint_at_end=True),
            ),
        )
        results = tuner.fit()
        best = results.get_best_result(metric=metric, mode="max")
    return outcome(best, metric, task)


def expert_model() -> Any:
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    return DefaultModelConfig(fcnet_hiddens=[32], fcnet_activation="linear", vf_share_layers=True)


def outcome(best: Any, metric: str, task: Task) -> dict[str, Any]:
    """What Tune says of its one trial."""
    if best.error:
        raise best.error
    value: Any = best.metrics
    for key in metric.split("/"):
        value = value[key]
    if value < task.target_return:
        raise RuntimeError(f"The trial ended at a return of {value:g}, below {task.target_return:g}.")
    return {
        "policy": best.checkpoint.path,
        "return_at_stop": value,
        "iterations": best.metrics["training_iteration"],
        "env_steps": best.metrics.get("num_env_steps_sampled_lifetime"),
    }


def record(task: Task, clock: Clock) -> dict[str, Any]:
    """ "Example: Record Expert Data to Local Disk"."""
    return run_record(task, clock, output_write_episodes=True, output_max_rows_per_file=25)


def record_table(task: Task, clock: Clock) -> dict[str, Any]:
    """ "Converting Tabular Data to RLlib's Episode Format", its recording."""
    return run_record(task, clock, output_write_episodes=False)


def run_record(task: Task, clock: Clock, **output: Any) -> dict[str, Any]:
    start(clock)
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core import COMPONENT_LEARNER, COMPONENT_LEARNER_GROUP, COMPONENT_RL_MODULE, DEFAULT_MODULE_ID

    with clock("stage"):
        config = (
            PPOConfig()
            .environment(env=ENVIRONMENT)
            .env_runners(batch_mode="complete_episodes")
            .evaluation(evaluation_num_env_runners=5, evaluation_duration=50, evaluation_duration_unit="episodes")
            .rl_module(model_config=expert_model())
            .offline_data(output=str(Path(task.output, "data")), **output)
        )
        algo = config.build()
        module = f"{COMPONENT_LEARNER_GROUP}/{COMPONENT_LEARNER}/{COMPONENT_RL_MODULE}/{DEFAULT_MODULE_ID}"
        algo.restore_from_path(f"{task.source}/{module}", component=module)
        played = []
        for _ in range(EVALUATE_CALLS):
            evaluation = algo.evaluate()["env_runners"]
            played.append(
                (
                    int(evaluation["num_episodes"]),
                    int(evaluation["num_env_steps_sampled"]),
                    float(evaluation["episode_return_mean"]),
                )
            )
        algo.stop()
    episodes, steps, returns = zip(*played, strict=True)
    return {"data": str(Path(task.output, "data")), "played": sum(episodes), "steps": sum(steps), "return": returns[-1]}


def convert(task: Task, clock: Clock) -> dict[str, Any]:
    """ "Converting Tabular Data to RLlib's Episode Format", its loop line by line."""
    start(clock)
    import gymnasium as gym
    import msgpack
    import msgpack_numpy as mnp
    from ray import data
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode
    from ray.rllib.utils.compression import unpack_if_needed

    output = str(Path(task.output, "data"))
    with clock("stage"):
        ds = data.read_parquet(task.source)
        env = gym.make(ENVIRONMENT)
        eps_obs: list[Any] = []
        eps_actions: list[Any] = []
        eps_rewards: list[Any] = []
        eps_extra_model_outputs: Any = defaultdict(list)
        episodes: list[bytes] = []
        for i, row in enumerate(ds.iter_rows()):
            if not row["terminateds"] and not row["truncateds"]:
                eps_obs.append(unpack_if_needed(row["obs"]))
                eps_actions.append(row["actions"])
                eps_rewards.append(row["rewards"])
                eps_extra_model_outputs["action_dist_inputs"].append(row["action_dist_inputs"])
                eps_extra_model_outputs["action_logp"].append(row["action_logp"])
            else:
                eps_obs.append(unpack_if_needed(row["new_obs"]))
                episode = SingleAgentEpisode(
                    id_=row["eps_id"],
                    agent_id=row["agent_id"],
                    module_id=row["module_id"],
                    observations=eps_obs,
                    observation_space=env.observation_space,
                    action_space=env.action_space,
                    actions=eps_actions,
                    rewards=eps_rewards,
                    t_started=0,
                    len_lookback_buffer=0,
                    terminated=row["terminateds"],
                    truncated=row["truncateds"],
                    extra_model_outputs=eps_extra_model_outputs,
                )
                episodes.append(msgpack.packb(episode.get_state(), default=mnp.encode))
                eps_obs.clear()
                eps_actions.clear()
                eps_rewards.clear()
                eps_extra_model_outputs = defaultdict(list)
            if len(episodes) > 49:
                episodes_ds = data.from_items(episodes)
                episodes_ds.write_parquet(f"{output}/file-{i}".zfill(6), compression="gzip")
                del episodes_ds
                episodes.clear()
        if len(episodes) > 0:
            episodes_ds = data.from_items(episodes)
            episodes_ds.write_parquet(f"{output}/file-{i}".zfill(6), compression="gzip")
            del episodes_ds
            episodes.clear()
    return {"data": output, "rows": i + 1}


def clone_config(algorithm: str, folder: str) -> Any:
    """ "Example: Training on Previously Saved Experiences"."""
    from ray.rllib.algorithms.bc import BCConfig
    from ray.rllib.algorithms.marwil import MARWILConfig

    return (
        {"bc": BCConfig, "marwil": MARWILConfig}[algorithm]()
        .environment(env=ENVIRONMENT)
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=1024)
        .offline_data(
            input_=[folder],
            input_read_episodes=True,
            input_read_batch_size=512,
            map_batches_kwargs={"concurrency": 2, "num_cpus": 1},
            iter_batches_kwargs={"prefetch_batches": 2, "local_shuffle_buffer_size": None},
            dataset_num_iters_per_learner=1,
        )
        .evaluation(
            evaluation_interval=3,
            evaluation_num_env_runners=1,
            evaluation_duration=5,
            evaluation_parallel_to_training=True,
        )
    )


def clone(task: Task, clock: Clock) -> dict[str, Any]:
    """Until Tune stops at the return."""
    start(clock)
    from ray import tune
    from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS, EPISODE_RETURN_MEAN, EVALUATION_RESULTS

    with clock("stage"):
        config = clone_config(task.stage, str(task.source))
        metric = f"{EVALUATION_RESULTS}/{ENV_RUNNER_RESULTS}/{EPISODE_RETURN_MEAN}"
        tuner = tune.Tuner(
            task.stage.upper(),
            param_space=config,
            run_config=tune.RunConfig(
                name=f"docs_rllib_offline_{task.stage}",
                storage_path=task.output,
                stop={metric: task.target_return},
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=True),
                verbose=2,
            ),
        )
        analysis = tuner.fit()
    return outcome(analysis[0], metric, task)


def seen(task: Task, clock: Clock) -> dict[str, Any]:
    """Not timed: the same training without Tune, for a while, and the steps in its batches."""
    import numpy as np

    start(clock)
    algorithm = task.stage.removesuffix("_seen")
    algo = clone_config(algorithm, str(task.source)).build()
    sample, obs, actions = algo.offline_data.sample, [], []

    def observed(*arguments: Any, **named: Any) -> Any:
        batch = sample(*arguments, **named)
        module = batch["default_policy"]
        real = np.asarray(module.get("loss_mask", np.ones(len(module["obs"]))), bool)
        obs.append(np.asarray(module["obs"])[real])
        actions.append(np.asarray(module["actions"])[real])
        return batch

    algo.offline_data.sample = observed
    begin = time.perf_counter()
    while len(obs) < COUNTED_UPDATES and time.perf_counter() - begin < COUNTED_SECONDS:
        algo.train()
    algo.stop()
    first = slice(COUNTED_UPDATES)  # the last call of train() may have made one more
    np.savez(Path(task.output, "seen.npz"), obs=np.concatenate(obs[first]), actions=np.concatenate(actions[first]))
    return {"updates": len(obs[first])}


def play_policy(task: Task, clock: Clock) -> dict[str, Any]:
    """Not timed: the policy of a run, greedy."""
    import torch
    from ray.rllib.core.rl_module.rl_module import RLModule

    module = RLModule.from_checkpoint(str(Path(str(task.source), "learner_group/learner/rl_module/default_policy")))

    def act(observations: Any) -> Any:
        with torch.no_grad():
            return module.forward_inference({"obs": torch.from_numpy(observations)})["action_dist_inputs"].argmax(-1).numpy()

    return play(act)


STAGES = {
    "expert": expert,
    "record_episodes": record,
    "record_table": record_table,
    "convert": convert,
    "bc": clone,
    "marwil": clone,
    "bc_seen": seen,
    "marwil_seen": seen,
    "play": play_policy,
}

if __name__ == "__main__":
    run(STAGES)
