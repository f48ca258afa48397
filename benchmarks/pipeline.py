"""The main job, stage by stage and as a whole: CartPole expert, 500 episodes in each format, a clone, the flow.

    python -m benchmarks.pipeline [--seed 0]

Each stage starts its own Ray, whose start and end count. Run on a quiet machine; ratios are measured in alternation.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

from benchmarks.figure import figure, median_seconds, seconds

EPISODES = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    with tempfile.TemporaryDirectory(prefix="offline-bench-") as root:
        flow(root, seed)
        policy = expert(root, seed)
        recording(root, policy, seed)
        clone(root, seed)
        decode(root)
        scan(root)
        feed(root)


def flow(root: str, seed: int) -> None:
    """The local call as a user makes it: a process of its own, with its embedded Prefect server."""
    command = [
        sys.executable,
        "-c",
        "from flows.cli import main; main()",
        "expert-to-policy",
        f"{root}/flow",
        "--seed",
        str(seed),
    ]
    env = os.environ | {"PREFECT_HOME": f"{root}/prefect"}
    took = seconds(lambda: subprocess.run(command, env=env, check=True, stdout=sys.stderr))
    figure("flow.seconds", took, "s")


def expert(root: str, seed: int) -> str:
    from offline_core.experts.config import ExpertConfig
    from offline_core.experts.train import train_expert

    result = train_expert(ExpertConfig(seed=seed), output=f"{root}/expert")
    figure("expert.seconds", result.seconds, "s")
    figure("expert.return", result.metrics["episode_return_mean"], "return")
    return result.checkpoint


def recording(root: str, policy: str, seed: int) -> None:
    from offline_core.recording.config import RecordingConfig
    from offline_core.recording.record import record_episodes
    from offline_core.storage.dataset import open_dataset

    for format in ("episodes", "table"):
        config = RecordingConfig(episodes=EPISODES, format=format, seed=seed)
        took = seconds(lambda config=config: record_episodes(config, policy=policy, output=f"{root}/{config.format}"))
        files = open_dataset(f"{root}/{format}").manifest.files
        figure(f"record.{format}.seconds", took, "s", episodes=EPISODES, steps=sum(file.steps for file in files))
        if format == "episodes":
            figure("record.episodes.files", len(files), "files")
            figure("record.episodes.bytes_per_step", sum(f.bytes for f in files) / sum(f.steps for f in files), "bytes/step")
        else:
            figure("record.table.rows", sum(file.rows for file in files), "rows", files=len(files))


def clone(root: str, seed: int) -> None:
    from offline_core.evaluation.config import EvaluationConfig
    from offline_core.evaluation.evaluate import evaluate_policy
    from offline_core.learning.config import TrainingConfig
    from offline_core.learning.train import train_policy

    result = train_policy(TrainingConfig(seed=seed), dataset=f"{root}/episodes", output=f"{root}/policy")
    played = evaluate_policy(EvaluationConfig(episodes=100, seed=seed), policy=result.checkpoint)
    figure("clone.seconds", result.seconds, "s", updates=result.updates, load_seconds=round(result.load_seconds, 2))
    figure("clone.return", played.metrics["episode_return_mean"], "return")


def decode(root: str) -> None:
    """Bytes of column `item` → episodes, on one core."""
    from offline_core.episodes import decode as decode_episode
    from offline_core.storage.dataset import open_dataset
    from offline_core.storage.reader import tables

    dataset = open_dataset(f"{root}/episodes")
    items = [item for table in tables(dataset, ["item"]) for item in table["item"].to_pylist()]
    took = median_seconds(lambda: [decode_episode(item) for item in items], repeats=7)
    figure("decode.steps_per_second", dataset.manifest.statistics.steps / took, "steps/s")


def scan(root: str) -> None:
    """Table files → contiguous arrays of observations, actions, rewards and ends, on one core, files in the page cache."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from offline_core.episodes.arrow import from_arrow
    from offline_core.storage.dataset import open_dataset

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    dataset = open_dataset(f"{root}/table")
    names = ["obs", "actions", "rewards", "terminateds", "truncateds"]

    def read() -> None:
        table = pq.read_table(dataset.paths, columns=names, use_threads=False)
        for name in names:
            from_arrow(table[name], name)

    took = median_seconds(read, repeats=7)
    figure("scan.steps_per_second", dataset.manifest.statistics.steps / took, "steps/s", columns=names)


def feed(root: str) -> None:
    """A learner fed by the pipeline against the same loop on tensors that lie ready, in alternation: as the pipeline runs
    by default (the dataset fits, so it waits in memory, and each batch is gathered from it), and when told to stream.
    """
    import torch

    from offline_core.learning.config import ComputeConfig, TrainingConfig
    from offline_core.learning.learner import Learner
    from offline_core.learning.losses import ALGORITHMS
    from offline_core.learning.source import make_feed, training_spaces
    from offline_core.policies.policy import Policy
    from offline_core.ray_session import ray_session
    from offline_core.storage.dataset import open_dataset

    torch.set_num_threads(1)
    source = open_dataset(f"{root}/episodes")
    config, algorithm, spaces = TrainingConfig(), ALGORITHMS["bc"], training_spaces(source)
    streaming = config.model_copy(update={"compute": ComputeConfig(resident_bytes=0)})
    learner = Learner(Policy(*spaces, config.network), algorithm.loss, config.optimizer)
    size = config.optimizer.batch_size
    with ray_session():
        feeds = {"feed.ratio": make_feed(source, config, algorithm, spaces)}
        feeds["feed.streaming.ratio"] = make_feed(source, streaming, algorithm, spaces)
        first = list(feeds["feed.ratio"].batches(0))
        ready = {name: torch.cat([batch[name] for batch in first]) for name in first[0]}

        def in_memory() -> None:
            for start in range(0, len(ready["actions"]), size):
                learner.update({name: tensor[start : start + size] for name, tensor in ready.items()})

        def fed(name: str) -> None:
            for batch in feeds[name].batches(1):
                learner.update(batch)

        for name in feeds:
            fed(name), in_memory()
            ratios = [seconds(in_memory) / seconds(lambda name=name: fed(name)) for _ in range(5)]
            figure(name, statistics.median(ratios), "of in-memory speed", batch_size=size, steps=len(ready["actions"]))


if __name__ == "__main__":
    main()
