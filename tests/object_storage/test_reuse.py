"""Every step of the core in a bucket: what it made there is found by the next call, and nothing is written by that."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from offline_core.data.store import object_store
from offline_core.data.store.location import Location
from offline_core.errors import StorageUnavailableError
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.ray_session import ray_session
from tests.data.datasets.test_reuse import STEPS, write_rows
from tests.learning.test_train import balancing_episodes, dataset_of
from tests.object_storage.faults import Fault, Proxy, Request, no_faults, refusal

DOWN = refusal(503, "ServiceUnavailable")


class Folder(str):
    """A URI that is joined as paths are."""

    def __truediv__(self, name: str) -> Folder:
        return Folder(f"{self}/{name}")


@dataclass
class Watch:
    """A plan that sees what is asked, and has one of these requests refused."""

    asked: set[tuple[str, str]] = field(default_factory=set)
    refused: tuple[str, str] | None = None

    def __call__(self, request: Request) -> Fault | None:
        self.asked.add((request.method, request.path))
        return DOWN if (request.method, request.path) == self.refused else None


@pytest.mark.slow
def test_what_was_made_in_a_bucket_is_found_there(
    bucket: str, proxied: Proxy, tmp_path: Path, cartpole_policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whichever of the requests for that meets an outage, nothing is made again over it."""
    monkeypatch.setattr(object_store, "RETRY_SECONDS", 0.0)  # one refusal is an outage
    write_rows(tmp_path)
    with ray_session():
        for name, step in STEPS.items():
            proxied.plan = no_faults
            root = Folder(f"{bucket}/{name.replace(' ', '-')}")
            dataset_of(root / "data", balancing_episodes(20, 30), environment=EnvironmentSpec(id="CartPole-v1"))
            for file in Path(cartpole_policy).glob("*.*"):
                Location.of(root / "policy" / file.name).write(file.read_bytes())
            Location.of(root / "rows.parquet").write((tmp_path / "rows.parquet").read_bytes())
            first = step(root)

            proxied.plan = watch = Watch()
            again = step(root)
            assert not first.reused and again == first.model_copy(update={"reused": True}), name
            for refused in sorted(watch.asked):
                watch.refused = refused
                with pytest.raises(StorageUnavailableError):
                    step(root)
            assert {method for method, _ in watch.asked} <= {"GET", "HEAD"}, f"nothing is written by {name}"
