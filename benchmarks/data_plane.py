"""The data plane beside its limit: MB/s of each stage, and the share of a plain pyarrow copy of the same bytes.

    python -m benchmarks.data_plane [--megabytes 500] [--stages import,prune,…] [--folder runs/data_plane]

The copy reads row groups and writes them with the codec of the stage, a file to a thread, on all cores. It is measured in
alternation with the stage. The dataset in `--folder` is made once. Run on a quiet machine with a page cache larger than it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from benchmarks.data import EPISODE_STEPS, write_foreign, write_recording
from benchmarks.figure import figure, seconds

OBSERVATION, ACTION = 17, 6
"""Numbers of a step, as HalfCheetah has them."""
STEP_BYTES = 120
"""About, of a step as it is stored."""
SMALL_FILE_EPISODES = 50
REPEATS = 3
MANIFEST_FILES, GROUPS_PER_FILE = 100_000, 10


class Stage(NamedTuple):
    """What is measured."""

    run: Callable[[str], object]
    """Takes the folder to write to."""
    paths: Sequence[str]
    """The files whose bytes are counted, and copied for comparison."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--stages", default=",".join([*STAGES, "manifest"]))
    parser.add_argument("--folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="offline-bench-") as root:
        folder = os.path.abspath(arguments.folder or f"{root}/source")
        make_sources(folder, arguments.megabytes)
        for name in arguments.stages.split(","):
            if name == "manifest":
                manifest(f"{root}/manifest")
            else:
                measure(name, STAGES[name](folder, root), root)


def make_sources(folder: str, megabytes: int) -> None:
    """Both formats, one in small files, and a table of another system; what is there stays."""
    import gymnasium as gym

    steps = megabytes * 10**6 // STEP_BYTES // EPISODE_STEPS * EPISODE_STEPS
    box = gym.spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32), gym.spaces.Box(-1, 1, (ACTION,), np.float32)
    sources: dict[str, dict[str, Any]] = {
        "episodes": {"format": "episodes"},
        "table": {"format": "table"},
        "small": {"format": "episodes", "max_rows_per_file": SMALL_FILE_EPISODES},
    }
    for name, files in sources.items():
        if not os.path.exists(f"{folder}/{name}/_versions/000001.json"):
            write_recording(f"{folder}/{name}", steps, spaces=box, **files)
    if not os.path.exists(f"{folder}/foreign"):
        write_foreign(files_of(f"{folder}/table"), f"{folder}/foreign.tmp", scrambled=False)
        os.rename(f"{folder}/foreign.tmp", f"{folder}/foreign")


def importing(folder: str, root: str) -> Stage:
    """Another system's table to episodes."""
    from offline_core.data.importing.config import ImportConfig
    from offline_core.data.importing.importing import import_data

    source = f"{folder}/foreign"
    paths = [f"{source}/{name}" for name in os.listdir(source)]
    return Stage(lambda output: import_data(ImportConfig(), source=source, output=output), paths)


def run_convert(folder: str, root: str) -> Stage:
    """Our table to episodes."""
    from offline_core.data.curation.converting import convert
    from offline_core.data.importing.config import ConversionConfig

    source = f"{folder}/table"
    return Stage(lambda output: convert(ConversionConfig(), dataset=source, output=output), files_of(source))


def run_prune(folder: str, root: str) -> Stage:
    """Steps of episodes, chosen by what is in them: all are decoded, so all are counted."""
    return _pruning(folder, root, where_steps="rewards >= 0.0 and t < 150")._replace(paths=files_of(f"{folder}/episodes"))


def prune_metadata(folder: str, root: str) -> Stage:
    """Half of the episodes, whole, chosen by their return and strewn over the dataset."""
    return _pruning(folder, root, keep_top_fraction=0.5)


def _pruning(folder: str, root: str, **parameters: Any) -> Stage:
    from offline_core.data.curation.config import PruningConfig
    from offline_core.data.curation.prune import prune

    config, source = PruningConfig(**parameters), f"{folder}/episodes"
    kept = prune(config, dataset=source, output=f"{root}/kept-{len(parameters)}-{next(iter(parameters))}").dataset
    return Stage(lambda output: prune(config, dataset=source, output=output), files_of(kept.uri))


def run_check(folder: str, root: str) -> Stage:
    """All rules over the table."""
    from offline_core.data.datasets.dataset import open_dataset
    from offline_core.data.quality.check import check, default_rules
    from offline_core.data.quality.config import QualityConfig

    source, config = f"{folder}/table", QualityConfig()
    assert open_dataset(source).manifest.format == "table"
    return Stage(lambda _: check(config, dataset=source, rules=default_rules(config)), files_of(source))


def run_compact(folder: str, root: str) -> Stage:
    """Small files to large ones."""
    from offline_core.data.curation.compact import compact
    from offline_core.data.curation.config import CompactionConfig

    source = f"{folder}/small"
    return Stage(lambda output: compact(CompactionConfig(), dataset=source, output=output), files_of(source))


STAGES: dict[str, Callable[[str, str], Stage]] = {
    "import": importing,
    "prune": run_prune,
    "prune.metadata": prune_metadata,
    "check": run_check,
    "compact": run_compact,
    "convert": run_convert,
}


def measure(name: str, stage: Stage, root: str) -> None:
    """Prints the stage's MB/s and its share of the copy's."""
    size = sum(map(os.path.getsize, stage.paths)) / 1e6
    took, copied = [], []
    for repeat in range(REPEATS):
        output = f"{root}/output-{name}-{repeat}"
        took.append(seconds(stage.run, output))
        shutil.rmtree(output, ignore_errors=True)
        copied.append(seconds(copy, stage.paths, f"{output}-copy"))
        shutil.rmtree(f"{output}-copy")
    fields = {"megabytes": round(size, 1), "seconds": statistics.median(took), "copy_seconds": statistics.median(copied)}
    figure(f"data_plane.{name}.mb_per_second", size / statistics.median(took), "MB/s", cores=os.cpu_count(), **fields)
    ratio = statistics.median(copied) / statistics.median(took)
    figure(f"data_plane.{name}.ratio_to_copy", ratio, "ratio", cores=os.cpu_count(), **fields)


def copy(paths: Sequence[str], target: str) -> None:
    """As plain pyarrow does it: each row group read and written again, and seen to be on the disk."""
    os.makedirs(target)

    def one(numbered: tuple[int, str]) -> None:
        file = pq.ParquetFile(numbered[1])
        with open(f"{target}/{numbered[0]}.parquet", "wb") as stream:
            with pq.ParquetWriter(stream, file.schema_arrow, compression="zstd", use_dictionary=False) as writer:
                for number in range(file.num_row_groups):
                    writer.write_table(file.read_row_group(number, use_threads=False))
            stream.flush()
            os.fsync(stream.fileno())

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, enumerate(paths)))


def manifest(uri: str) -> None:
    """A version of 10^5 files with 10^6 row groups that are not there: opening it, and listing its row groups."""
    from offline_core.data.datasets.commit import commit, prepare_dataset
    from offline_core.data.datasets.dataset import open_dataset
    from offline_core.data.datasets.manifest import FileEntry, Operation
    from offline_core.data.datasets.statistics import Statistics

    def entry(number: int) -> FileEntry:
        digest = hashlib.sha256(str(number).encode()).hexdigest()
        groups = {"group_rows": [4096] * GROUPS_PER_FILE, "group_bytes": [4_194_304 + number] * GROUPS_PER_FILE}
        counts = {"rows": 4096 * GROUPS_PER_FILE, "episodes": 200, "steps": 4096 * GROUPS_PER_FILE, "bytes": 40_000_000}
        return FileEntry(path=f"part-{number:06d}.parquet", sha256=digest, footer_sha256=digest, **counts, **groups)

    prepare_dataset(uri)
    files = [entry(number) for number in range(MANIFEST_FILES)]
    commit(uri, files, format="table", operation=Operation(name="benchmark"), statistics=Statistics(episodes=1, steps=1))
    fields = {"files": MANIFEST_FILES, "row_groups": MANIFEST_FILES * GROUPS_PER_FILE}
    figure("data_plane.manifest.open_seconds", seconds(open_dataset, uri), "s", **fields)
    opened = open_dataset(uri)
    figure("data_plane.manifest.plan_seconds", seconds(lambda: list(opened.row_groups())), "s", **fields)


def files_of(uri: str) -> list[str]:
    """The data files of a dataset's latest version."""
    from offline_core.data.datasets.dataset import open_dataset

    return open_dataset(uri).paths


if __name__ == "__main__":
    main()
