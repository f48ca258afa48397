"""A stage as a run of MLflow, where `MLFLOW_TRACKING_URI` is; aliases of a registry are those of a registered model there."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from offline_core.data.store.location import Location
from offline_core.keeping.promotion.result import PromotionResult
from offline_core.keeping.tracking import MOST_PARAMETERS, axis_of, flat_values, plain_name
from offline_core.learning.metrics import Record
from offline_core.runtime.config import without_defaults
from offline_core.runtime.extras import require_extra
from offline_core.runtime.provenance import provenance
from offline_core.runtime.reporting.card import Card
from offline_core.secrets import masked

TRACKER = "MLFLOW_TRACKING_URI"
EXPERIMENT = "offline-rl-pipeline"
"""Unless `MLFLOW_EXPERIMENT_NAME` names another one."""
_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # of MLflow's own 7, each waits twice as long
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
_MOST_METRICS = 500
"""That MLflow takes at once."""
_MOST_CHARACTERS = 500
_SECONDS_BETWEEN_BATCHES = 5.0
"""A request takes some 10 ms, and a training has hundreds of records."""


class MlflowRun:
    """See `TrackedRun`."""

    tracker = "MLflow"

    def __init__(self, config: BaseModel, operation: str) -> None:
        self._config, self._operation = config, operation
        self._client: Any = None
        self._run: Any = None
        self._waiting: list[Any] = []
        self._seen: set[str] = set()
        """Names that have curves."""
        self._next_batch = 0.0

    def see(self, record: Record) -> None:
        """Report a record, some of them at once."""
        client = self._opened()
        from mlflow.entities import Metric

        now, step = int(1000 * time.time()), int(record.get(axis_of(record), 0))
        numbers = {name: float(value) for name, value in record.items() if isinstance(value, int | float)}
        self._waiting += [Metric(plain_name(name), value, now, step) for name, value in numbers.items() if math.isfinite(value)]
        self._seen.update(map(plain_name, numbers))
        if time.monotonic() >= self._next_batch:
            self._send(client)
            self._next_batch = time.monotonic() + _SECONDS_BETWEEN_BATCHES

    def _send(self, client: Any) -> None:
        while self._waiting:
            client.log_batch(self._run.info.run_id, metrics=self._waiting[:_MOST_METRICS])
            del self._waiting[:_MOST_METRICS]

    def report(self, result: BaseModel, card: Card) -> None:
        """Report a result; of one that was reused, only what an alias names."""
        if getattr(result, "reused", False) and not isinstance(result, PromotionResult):
            return
        client = self._opened()
        from mlflow.entities import Metric, RunTag

        values = dict(flat_values(masked(result.model_dump(mode="python"))))
        numbers = {
            name: float(value) for name, value in values.items() if isinstance(value, int | float) and name not in self._seen
        }
        words = {name: value for name, value in values.items() if isinstance(value, str)}
        shown = [*provenance().items(), *words.items()][:MOST_PARAMETERS]
        client.log_batch(
            self._run.info.run_id,
            metrics=[Metric(name, value, 0, 0) for name, value in numbers.items() if math.isfinite(value)][:_MOST_METRICS],
            tags=[RunTag(name, value[:_MOST_CHARACTERS]) for name, value in shown],
        )
        with _folder(card.files("card")) as folder:
            client.log_artifacts(self._run.info.run_id, folder)
        if isinstance(result, PromotionResult):
            _mirror(client, self._run.info, result)

    def finish(self, *, has_failed: bool) -> None:
        """Send what waits, and end the run."""
        if self._run is not None:
            status = "FAILED"
            try:
                self._send(self._client)
                status = "FAILED" if has_failed else "FINISHED"
            finally:
                self._client.set_terminated(self._run.info.run_id, status)

    def _opened(self) -> Any:
        """The client, once there is a run."""
        if self._run is None:
            for name, value in _DEFAULTS.items():
                os.environ.setdefault(name, value)
            with require_extra("mlflow"):
                from mlflow import MlflowClient
                from mlflow.entities import Param
            uri = os.environ[TRACKER]
            self._client = client = MlflowClient(uri, os.environ.get("MLFLOW_REGISTRY_URI") or uri)
            experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
            stored = client.get_experiment_by_name(experiment)
            number = stored.experiment_id if stored else client.create_experiment(experiment)
            self._run = client.create_run(number, run_name=self._operation)
            changed = [*flat_values(masked(without_defaults(self._config)))][:MOST_PARAMETERS]
            client.log_batch(
                self._run.info.run_id, params=[Param(name, str(value)[:_MOST_CHARACTERS]) for name, value in changed]
            )
        return self._client


def _mirror(client: Any, run: Any, result: PromotionResult) -> None:
    """The alias in MLflow's registry: a version of a registered model for each policy."""
    move, name = result.move, result.address.rpartition("@")[0].rpartition("/")[2]
    if not client.search_registered_models(f"name='{name}'"):
        client.create_registered_model(name)
    known = [
        version
        for version in client.search_model_versions(f"name='{name}'")
        if version.tags.get("checkpoint") == move.checkpoint
    ]
    if not known:
        location = Location.of(result.checkpoint)
        with _folder({file: location.inside(file).read() for file in location.files(recursive=False)}) as folder:
            client.log_artifacts(run.run_id, folder, "policy")
        tags = {"checkpoint": move.checkpoint, "fingerprint": move.fingerprint, "address": result.address}
        known = [client.create_model_version(name, f"{run.artifact_uri}/policy", run.run_id, tags=tags)]
    client.set_registered_model_alias(name, move.alias, known[0].version)


@contextlib.contextmanager
def _folder(files: Mapping[str, bytes]) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="offline-") as folder:
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        yield folder
