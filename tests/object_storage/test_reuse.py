"""Every step of the core in a bucket: what it made there is found by the next call, and nothing is written by that."""

from __future__ import annotations

from pathlib import Path

import pytest

from offline_core.config import EnvironmentSpec
from offline_core.ray_session import ray_session
from offline_core.storage.location import Location
from offline_core.storage.s3 import S3Store
from tests.learning.test_train import balancing_episodes, dataset_of
from tests.test_reuse import STEPS, write_rows


class Folder(str):
    """A URI that is joined as paths are."""

    def __truediv__(self, name: str) -> Folder:
        return Folder(f"{self}/{name}")


def test_what_was_made_in_a_bucket_is_found_there(
    bucket: str, tmp_path: Path, cartpole_policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    ask = S3Store._ask
    monkeypatch.setattr(
        S3Store, "_ask", lambda self, what, path, **more: asked.append((what, path)) or ask(self, what, path, **more)
    )
    write_rows(tmp_path)
    with ray_session():
        for name, step in STEPS.items():
            root = Folder(f"{bucket}/{name.replace(' ', '-')}")
            dataset_of(root / "data", balancing_episodes(20, 30), environment=EnvironmentSpec(id="CartPole-v1"))
            for file in Path(cartpole_policy).iterdir():
                Location.of(root / "policy" / file.name).write(file.read_bytes())
            Location.of(root / "rows.parquet").write((tmp_path / "rows.parquet").read_bytes())
            first = step(root)
            asked.clear()
            again = step(root)
            assert not first.reused and again == first.model_copy(update={"reused": True}), name
            assert not [(what, path) for what, path in asked if what != "get_object"], name
