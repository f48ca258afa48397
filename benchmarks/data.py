"""The data plane: how fast datasets are pruned and compacted, against copying the same bytes.

    python -m benchmarks.data [--max-steps 1000000]

Run on a quiet machine with a page cache larger than the data; what is compared is measured in alternation.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import numpy as np

from benchmarks.figure import figure, seconds

STEPS = (100_000, 1_000_000, 10_000_000)
EPISODE_STEPS = 200
EPISODES_AT_A_TIME = 1_000
CODECS = ("zstd", "lz4", "none")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-steps", type=int, default=1_000_000)
    max_steps = parser.parse_args().max_steps
    for steps in (steps for steps in STEPS if steps <= max_steps):
        with tempfile.TemporaryDirectory(prefix="offline-bench-") as root:
            compact(root, steps)
            prune(root, steps)


def compact(root: str, steps: int) -> None:
    """Many small files to few large ones, in both formats."""
    from offline_core.pruning.compact import compact_dataset
    from offline_core.pruning.config import CompactionConfig
    from offline_core.storage.dataset import open_dataset

    for format in ("episodes", "table"):
        source = f"{root}/compact-{format}"
        write_recording(source, steps, format=format, max_rows_per_file=100 if format == "episodes" else 100 * EPISODE_STEPS)
        dataset = open_dataset(source)
        took = statistics.median(
            seconds(lambda i=i: compact_dataset(CompactionConfig(), dataset=source, output=f"{source}-{i}")) for i in range(3)
        )
        after = len(open_dataset(f"{source}-0").manifest.files)
        fields = {"format": format, "steps": steps, "files": len(dataset.manifest.files), "files_after": after}
        figure("compact.bytes_per_second", dataset.ref.bytes / took, "bytes/s", **fields)


def prune(root: str, steps: int, *, pairs: int = 5) -> None:
    """Half of the episodes, chosen by return and strewn over the dataset, against a copy of the files that come of it."""
    from offline_core.pruning.config import PruningConfig
    from offline_core.pruning.prune import prune_dataset
    from offline_core.storage.writer import FilesConfig

    for codec in CODECS:
        source, output = f"{root}/prune-{codec}", f"{root}/pruned-{codec}"
        write_recording(source, steps, format="episodes", compression=codec)
        config = PruningConfig(keep_top_fraction=0.5, files=FilesConfig(compression=codec))
        kept = prune_dataset(config, dataset=source, output=f"{output}-kept").dataset
        pruned, copied = [], []
        for pair in range(pairs):
            pruned.append(seconds(lambda: prune_dataset(config, dataset=source, output=f"{output}-{pair}")))
            copied.append(seconds(lambda: copy_files(kept.uri, f"{output}-{pair}-copy")))
        fields = {"compression": codec, "steps": steps, "bytes": kept.bytes}
        took = statistics.median(pruned)
        figure("prune.metadata.ratio_to_copy", statistics.median(copied) / took, "ratio", seconds=took, **fields)
        figure("prune.metadata.peak_memory", peak_memory(source, f"{output}-memory", codec), "MiB", **fields)


def copy_files(source: str, target: str) -> None:
    """As `shutil.copy` does it, and seen to be on the disk."""
    os.makedirs(target)
    for name in os.listdir(source):
        if name.endswith(".parquet"):
            with open(shutil.copy(f"{source}/{name}", target), "rb") as file:
                os.fsync(file.fileno())


def peak_memory(source: str, output: str, codec: str) -> float:
    """MiB that a process needs beyond what its imports take (Linux)."""
    script = f"""
import re
from offline_core.pruning.config import PruningConfig
from offline_core.pruning.prune import prune_dataset
from offline_core.storage.writer import FilesConfig
config = PruningConfig(keep_top_fraction=0.5, files=FilesConfig(compression={codec!r}))
peak = lambda: int(re.search(r"VmHWM:\s*(\d+)", open("/proc/self/status").read())[1]) / 1024
before = peak()
prune_dataset(config, dataset={source!r}, output={output!r})
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return float(done.stdout)


def write_recording(uri: str, steps: int, *, format: str, **files: object) -> None:
    """What a recording of CartPole is like: random walks of four floats, with the outputs of the policy."""
    import gymnasium as gym

    from offline_core.episodes import Episode
    from offline_core.storage.dataset import commit, prepare_dataset
    from offline_core.storage.manifest import Operation
    from offline_core.storage.writer import EpisodeWriter, FilesConfig

    rng = np.random.default_rng(0)
    spaces = {
        "observation_space": gym.spaces.Box(-np.inf, np.inf, (4,), np.float32),
        "action_space": gym.spaces.Discrete(2),
    }

    def episode(number: int) -> Episode:
        return Episode(
            eps_id=f"{number:032x}",
            observations=np.cumsum(rng.standard_normal((EPISODE_STEPS + 1, 4)), axis=0).astype(np.float32),
            actions=rng.integers(0, 2, EPISODE_STEPS),
            rewards=rng.random(EPISODE_STEPS),
            extras={
                "action_logp": rng.standard_normal(EPISODE_STEPS).astype(np.float32),
                "action_dist_inputs": rng.standard_normal((EPISODE_STEPS, 2)).astype(np.float32),
            },
            truncated=True,
            **spaces,
        )

    count = steps // EPISODE_STEPS
    with EpisodeWriter(prepare_dataset(uri), "part", format=format, config=FilesConfig(**files)) as writer:
        for start in range(0, count, EPISODES_AT_A_TIME):
            writer.write([episode(i) for i in range(start, min(count, start + EPISODES_AT_A_TIME))])
    operation = Operation(name="benchmark")
    commit(uri, writer.files, format=format, operation=operation, statistics=writer.statistics, **spaces)


if __name__ == "__main__":
    main()
