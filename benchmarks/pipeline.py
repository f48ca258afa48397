"""The main job, stage by stage and as a whole: CartPole expert, 500 episodes in each format, a clone, the flow.

    python -m benchmarks.pipeline [--seed 0]

Each stage starts its own Ray, whose start and end count. Run on a quiet machine; ratios are measured in alternation.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figure import figure, median_seconds, seconds

EPISODES = 500
DISTRIBUTED = str(Path(__file__).parents[1] / "examples" / "distributed.yaml")


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


def flow(root: str, seed: int) -> None:
    """The chain as a user calls it, in one process and distributed; each with a temporary Prefect server."""
    took = {
        name: chain(f"{root}/{name}", seed, *more)
        for name, more in {"flow": (), "distributed.flow": ("-c", DISTRIBUTED)}.items()
    }
    for name, duration_seconds in took.items():
        figure(f"{name}.seconds", duration_seconds, "s")
    figure("distributed.overhead.seconds", took["distributed.flow"] - took["flow"], "s")


def chain(root: str, seed: int, *more: str) -> float:
    """Seconds of the whole command."""
    main = [sys.executable, "-c", "from flows.cli import main; main()"]
    command = [*main, "expert-to-policy", root, "--seed", str(seed), *more]
    env = os.environ | {"PREFECT_HOME": f"{root}-prefect"}
    return seconds(lambda: subprocess.run(command, env=env, check=True, stdout=sys.stderr))


def expert(root: str, seed: int) -> str:
    from offline_core.learning.experts.config import ExpertConfig
    from offline_core.learning.experts.train import train_expert

    result = train_expert(ExpertConfig(seed=seed), output=f"{root}/expert")
    figure("expert.seconds", result.seconds, "s")
    figure("expert.return", result.metrics["episode_return_mean"], "return")
    return result.checkpoint


def recording(root: str, policy: str, seed: int) -> None:
    from offline_core.data.datasets.dataset import open_dataset
    from offline_core.policies.recording.config import RecordingConfig
    from offline_core.policies.recording.record import record

    for format in ("episodes", "table"):
        config = RecordingConfig(episodes=EPISODES, format=format, seed=seed)
        took = seconds(lambda config=config: record(config, policy=policy, output=f"{root}/{config.format}"))
        files = open_dataset(f"{root}/{format}").manifest.files
        figure(f"record.{format}.seconds", took, "s", episodes=EPISODES, steps=sum(file.steps for file in files))
        if format == "episodes":
            figure("record.episodes.files", len(files), "files")
            figure("record.episodes.bytes_per_step", sum(f.bytes for f in files) / sum(f.steps for f in files), "bytes/step")
        else:
            figure("record.table.rows", sum(file.rows for file in files), "rows", files=len(files))


def clone(root: str, seed: int) -> None:
    from offline_core.learning.config import TrainingConfig
    from offline_core.learning.train import train
    from offline_core.policies.evaluation import EvaluationConfig, evaluate

    result = train(TrainingConfig(seed=seed), dataset=f"{root}/episodes", output=f"{root}/policy")
    played = evaluate(EvaluationConfig(episodes=100, seed=seed), policy=result.checkpoint)
    figure("clone.seconds", result.seconds, "s", updates=result.updates, load_seconds=round(result.load_seconds, 2))
    figure("clone.return", played.metrics["episode_return_mean"], "return")


def decode(root: str) -> None:
    """Bytes of column `item` → episodes, on one core."""
    from offline_core.data.datasets.dataset import open_dataset
    from offline_core.data.episodes import decode as decode_episode

    dataset = open_dataset(f"{root}/episodes")
    items = [item for table in dataset.tables(["item"]) for item in table["item"].to_pylist()]
    took = median_seconds(lambda: [decode_episode(item) for item in items], repeats=7)
    figure("decode.steps_per_second", dataset.manifest.statistics.steps / took, "steps/s")


def scan(root: str) -> None:
    """Table files → contiguous arrays of observations, actions, rewards and ends, on one core, files in the page cache."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from offline_core.data.datasets.dataset import open_dataset
    from offline_core.data.episodes.arrow import from_arrow

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


if __name__ == "__main__":
    main()
