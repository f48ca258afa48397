"""Every operation on datasets and policies, from bucket to bucket: what it makes is what it makes on a disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offline_core.data.curation.compact import compact
from offline_core.data.curation.config import CompactionConfig, MergeConfig, PruningConfig, SplitConfig
from offline_core.data.curation.converting import convert
from offline_core.data.curation.merge import merge
from offline_core.data.curation.prune import prune
from offline_core.data.curation.split import split
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.importing.config import ConversionConfig
from offline_core.data.quality.check import check, last_report
from offline_core.data.quality.config import QualityConfig
from offline_core.data.store.location import Location
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.export import export_policy
from offline_core.policies.export_config import PolicyExportConfig
from tests.cases import slow_but
from tests.object_storage.contract import write_dataset
from tests.policies.test_export import written_at_once  # noqa: F401

OPERATIONS: dict[str, Callable[[str, str], Any]] = {
    "prune": lambda data, out: prune(PruningConfig(keep_top_fraction=0.5), dataset=data, output=out),
    "prune steps": lambda data, out: prune(PruningConfig(where_steps="rewards > 0"), dataset=data, output=out),
    "compact": lambda data, out: compact(CompactionConfig(), dataset=data, output=out),
    "split": lambda data, out: split(SplitConfig(), dataset=data, output=out),
    "merge": lambda data, out: merge(MergeConfig(), datasets=[data, f"{data}-2"], output=out),
    "convert": lambda data, out: convert(ConversionConfig(), dataset=data, output=out),
}


def files(uri: str) -> dict[str, int]:
    return {name: size for name, size in Location.of(uri).sizes().items() if name.endswith(".parquet")}


@pytest.mark.parametrize("name", slow_but(OPERATIONS, "prune", "merge"))
def test_the_same_files_come_of_it(name: str, bucket: str, tmp_path: Path) -> None:
    operation = OPERATIONS[name]
    for root in (str(tmp_path), bucket):
        write_dataset(f"{root}/data", 12)
        write_dataset(f"{root}/data-2", 14)
        operation(f"{root}/data", f"{root}/out")
    assert files(f"{bucket}/out") == files(f"{tmp_path}/out") != {}
    assert operation(f"{bucket}/data", f"{bucket}/out").reused


def test_a_check_is_kept_beside_the_data(bucket: str) -> None:
    write_dataset(f"{bucket}/data")
    report = check(QualityConfig(), dataset=f"{bucket}/data")
    assert last_report(open_dataset(f"{bucket}/data")) == report


@pytest.mark.usefixtures("written_at_once")
def test_policies_are_exported_and_loaded(bucket: str, cartpole_policy: str) -> None:
    config = PolicyExportConfig(formats=["onnx"], latency_calls=3)
    policy = Location.of(f"{bucket}/policy")
    for name in Location.of(cartpole_policy).files():
        policy.child(name).write(Location.of(cartpole_policy).child(name).read())
    load_policy(policy.uri)
    there = export_policy(config, policy=policy.uri, output=f"{bucket}/out")
    assert there.output == f"{bucket}/out"
    model = there.models["onnx"]
    assert hashlib.sha256(Location.of(f"{bucket}/out").child(model.file).read()).hexdigest() == model.sha256
    assert export_policy(config, policy=policy.uri, output=f"{bucket}/out").reused
