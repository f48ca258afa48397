"""The data plane: how fast foreign tables become episodes, and how fast datasets are pruned and compacted.

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
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.figure import figure, seconds
from benchmarks.verification import verification

if TYPE_CHECKING:
    import gymnasium as gym

STEPS = (100_000, 1_000_000, 10_000_000)
EPISODE_STEPS = 200
EPISODES_AT_A_TIME = 1_000
DOCUMENT_STEPS = 100_000
"""As many steps as the document's loop can be waited for."""
FILES = 10
CODECS = ("zstd", "lz4", "none")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-steps", type=int, default=1_000_000)
    max_steps = parser.parse_args().max_steps
    for steps in (steps for steps in STEPS if steps <= max_steps):
        with tempfile.TemporaryDirectory(prefix="offline-bench-") as root:
            run_convert(root, steps)
            run_compact(root, steps)
            run_prune(root, steps)
            verification(root, steps)
    with tempfile.TemporaryDirectory(prefix="offline-bench-") as root:
        document_loop(root, min(max_steps, DOCUMENT_STEPS))


def run_convert(root: str, steps: int) -> None:
    """Another system's Parquet files to episodes, in order and scrambled within each file; and both our formats."""
    from offline_core.data.datasets.dataset import open_dataset

    write_recording(f"{root}/table", steps, format="table", max_rows_per_file=max(EPISODE_STEPS, steps // FILES))
    paths = open_dataset(f"{root}/table").paths
    for rows in ("in order", "scrambled"):
        folder = f"{root}/{rows.replace(' ', '-')}"
        write_foreign(paths, folder, scrambled=rows == "scrambled")
        run = f"import_data(ImportConfig(), source={folder!r}, output={folder + '-imported'!r})"
        took, peak = in_process("from offline_core.data.importing.importing import *", run)
        fields = {"steps": steps, "rows": rows, "files": len(paths)}
        figure("convert.steps_per_second", steps / took, "steps/s", **fields)
        figure("convert.peak_bytes", peak, "bytes", **fields)
        shutil.rmtree(folder)
    source, output = f"{root}/table", f"{root}/converted"
    run = f"convert(ConversionConfig(), dataset={source!r}, output={output!r})"
    took, peak = in_process("from offline_core.data.curation.converting import *", run)
    figure("convert.table_to_episodes.steps_per_second", steps / took, "steps/s", steps=steps, peak_bytes=peak)
    run = f"convert(ConversionConfig(format='table'), dataset={output!r}, output={output + '-back'!r})"
    took, peak = in_process("from offline_core.data.curation.converting import *", run)
    figure("convert.episodes_to_table.steps_per_second", steps / took, "steps/s", steps=steps, peak_bytes=peak)


def write_foreign(paths: list[str], folder: str, *, scrambled: bool) -> None:
    """Write the same rows as another system would keep them, without a manifest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    os.makedirs(folder)
    for path in paths:
        table = pq.read_table(path)
        if scrambled:
            table = table.take(pa.array(rng.permutation(table.num_rows)))
        pq.write_table(table, f"{folder}/{os.path.basename(path)}", compression="zstd", row_group_size=100_000)


def document_loop(root: str, steps: int, *, pairs: int = 3) -> None:
    """The same table by the loop of RLlib's document, Ray's start not counted, and by us."""
    import ray

    from offline_core.data.curation.converting import convert
    from offline_core.data.datasets.dataset import open_dataset
    from offline_core.data.importing.config import ConversionConfig

    source = f"{root}/table"
    write_recording(source, steps, format="table")
    files = open_dataset(source).paths
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    theirs, ours, kept = [], [], 0
    for pair in range(pairs):
        theirs.append(seconds(as_in_the_document, files, f"{root}/theirs-{pair}"))
        ours.append(seconds(convert, ConversionConfig(), dataset=source, output=f"{root}/ours-{pair}"))
        kept = steps_of_rllib(f"{root}/theirs-{pair}")
    ray.shutdown()
    fields = {"steps": steps, "steps_kept_by_document_loop": kept, "steps_kept_by_us": open_dataset(f"{root}/ours-0").ref.steps}
    ratio = statistics.median(theirs) / statistics.median(ours)
    figure("convert.ratio_to_document_loop", ratio, "ratio", seconds=statistics.median(ours), **fields)


def as_in_the_document(files: list[str], output: str) -> None:
    """Working with offline data, "Converting Tabular Data to RLlib's Episode Format", its loop line by line."""
    from collections import defaultdict

    import gymnasium as gym
    import msgpack
    import msgpack_numpy
    from ray import data
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    ds = data.read_parquet(files)
    env = gym.make("CartPole-v1")
    eps_obs, eps_actions, eps_rewards, eps_extra_model_outputs = [], [], [], defaultdict(list)
    episodes = []
    for i, row in enumerate(ds.iter_rows()):  # Ray no longer has the document's prefetch_batches=10
        if not row["terminateds"] and not row["truncateds"]:
            eps_obs.append(row["obs"])
            eps_actions.append(row["actions"])
            eps_rewards.append(row["rewards"])
            eps_extra_model_outputs["action_dist_inputs"].append(row["action_dist_inputs"])
            eps_extra_model_outputs["action_logp"].append(row["action_logp"])
        else:
            eps_obs.append(row["new_obs"])
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
            episodes.append(msgpack.packb(episode.get_state(), default=msgpack_numpy.encode))
            eps_obs.clear()
            eps_actions.clear()
            eps_rewards.clear()
            eps_extra_model_outputs = defaultdict(list)
        if len(episodes) > 49:
            data.from_items(episodes).write_parquet(f"{output}/file-{i}".zfill(6), compression="gzip")
            episodes.clear()
    if len(episodes) > 0:
        data.from_items(episodes).write_parquet(f"{output}/file-{i}".zfill(6), compression="gzip")


def steps_of_rllib(folder: str) -> int:
    """Steps in a folder of episodes, as they are there."""
    import pyarrow.dataset as ds

    from offline_core.data.episodes import decode

    items = ds.dataset(folder, format="parquet").to_table(columns=["item"])["item"].to_pylist()
    return sum(len(decode(item)) for item in items)


def in_process(imports: str, run: str) -> tuple[float, float]:
    """(seconds, bytes of memory at the peak beyond what imports take) of a statement in a process of its own (Linux)."""
    script = f"""
import re, time
from offline_core.data.importing.config import ConversionConfig, ImportConfig
{imports}
peak = lambda: int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) * 1024
before, start = peak(), time.perf_counter()
{run}
print(time.perf_counter() - start, peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    took, memory = map(float, done.stdout.split())
    return took, memory


def run_compact(root: str, steps: int) -> None:
    """Many small files to few large ones, in both formats."""
    from offline_core.data.curation.compact import compact
    from offline_core.data.curation.config import CompactionConfig
    from offline_core.data.datasets.dataset import open_dataset

    for format in ("episodes", "table"):
        source = f"{root}/compact-{format}"
        write_recording(source, steps, format=format, max_rows_per_file=100 if format == "episodes" else 100 * EPISODE_STEPS)
        dataset = open_dataset(source)
        took = statistics.median(seconds(compact, CompactionConfig(), dataset=source, output=f"{source}-{i}") for i in range(3))
        after = len(open_dataset(f"{source}-0").manifest.files)
        fields = {"format": format, "steps": steps, "files": len(dataset.manifest.files), "files_after": after}
        figure("compact.bytes_per_second", dataset.ref.bytes / took, "bytes/s", **fields)


def run_prune(root: str, steps: int, *, pairs: int = 5) -> None:
    """Half of the episodes, chosen by return and strewn over the dataset, against a copy of the files that come of it."""
    from offline_core.data.curation.config import PruningConfig
    from offline_core.data.curation.prune import prune
    from offline_core.data.datasets.data_file import FilesConfig

    for codec in CODECS:
        source, output = f"{root}/prune-{codec}", f"{root}/pruned-{codec}"
        write_recording(source, steps, format="episodes", compression=codec)
        config = PruningConfig(keep_top_fraction=0.5, files=FilesConfig(compression=codec))
        kept = prune(config, dataset=source, output=f"{output}-kept").dataset
        pruned, copied = [], []
        for pair in range(pairs):
            pruned.append(seconds(prune, config, dataset=source, output=f"{output}-{pair}"))
            copied.append(seconds(copy_files, kept.uri, f"{output}-{pair}-copy"))
        fields = {"compression": codec, "steps": steps, "bytes": kept.bytes}
        took = statistics.median(pruned)
        figure("prune.metadata.ratio_to_copy", statistics.median(copied) / took, "ratio", seconds=took, **fields)
        run = f"prune(PruningConfig(keep_top_fraction=0.5), dataset={source!r}, output={output + '-memory'!r})"
        _, peak = in_process("from offline_core.data.curation.prune import *", run)
        figure("prune.metadata.peak_bytes", peak, "bytes", **fields)


def copy_files(source: str, target: str) -> None:
    """Copy as `shutil.copy` does, and wait until the copy is on the disk."""
    os.makedirs(target)
    for name in os.listdir(source):
        if name.endswith(".parquet"):
            with open(shutil.copy(f"{source}/{name}", target), "rb") as file:
                os.fsync(file.fileno())


def write_recording(
    uri: str, steps: int, *, format: str, spaces: tuple[gym.Space[Any], gym.Space[Any]] | None = None, **files: object
) -> None:
    """What a recording of CartPole is like: random walks of four floats, with the outputs of the policy.

    Arguments:
        spaces: of other observations and actions: a vector, and a choice from 0 on or a vector within ±1.
    """
    import gymnasium as gym

    from offline_core.data.datasets.commit import commit, prepare_dataset
    from offline_core.data.datasets.data_file import FilesConfig
    from offline_core.data.datasets.manifest import Operation
    from offline_core.data.datasets.writer import EpisodeWriter
    from offline_core.data.episodes import Episode

    rng = np.random.default_rng(0)
    seen, acted = spaces or (gym.spaces.Box(-np.inf, np.inf, (4,), np.float32), gym.spaces.Discrete(2))
    of_episodes: dict[str, Any] = {"observation_space": seen, "action_space": acted}

    def actions() -> np.ndarray:
        if isinstance(acted, gym.spaces.Discrete):
            return rng.integers(0, acted.n, EPISODE_STEPS)
        return rng.uniform(-1, 1, (EPISODE_STEPS, *acted.shape)).astype(np.float32)

    def episode(number: int) -> Episode:
        return Episode(
            eps_id=f"{number:032x}",
            observations=np.cumsum(rng.standard_normal((EPISODE_STEPS + 1, *seen.shape)), axis=0).astype(np.float32),
            actions=actions(),
            rewards=rng.random(EPISODE_STEPS),
            extras={
                "action_logp": rng.standard_normal(EPISODE_STEPS).astype(np.float32),
                "action_dist_inputs": rng.standard_normal((EPISODE_STEPS, 2)).astype(np.float32),
            },
            truncated=True,
            **of_episodes,
        )

    count = steps // EPISODE_STEPS
    with EpisodeWriter(prepare_dataset(uri), "part", format=format, config=FilesConfig(**files)) as writer:
        for start in range(0, count, EPISODES_AT_A_TIME):
            writer.write([episode(i) for i in range(start, min(count, start + EPISODES_AT_A_TIME))])
    operation = Operation(name="benchmark")
    commit(uri, writer.files, format=format, operation=operation, statistics=writer.statistics, **of_episodes)


if __name__ == "__main__":
    main()
