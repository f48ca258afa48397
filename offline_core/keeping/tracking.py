"""Reports stages to MLflow, if `MLFLOW_TRACKING_URI` names a tracker: runs, parameters, metrics, cards, and aliases.

The tracker is a copy for those who look at it. Nothing is read from it, and losing it is a warning.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from offline_core.data.store.location import Location
from offline_core.keeping.promotion.result import PromotionResult
from offline_core.runtime.config import without_defaults
from offline_core.runtime.extras import require_extra
from offline_core.runtime.provenance import provenance
from offline_core.runtime.reporting.card import Card
from offline_core.secrets import masked, masked_text

log = logging.getLogger("offline_core")  # whose lines Prefect keeps with the run

TRACKER = "MLFLOW_TRACKING_URI"
EXPERIMENT = "offline-rl-pipeline"
"""Unless `MLFLOW_EXPERIMENT_NAME` names another one."""
_DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # of MLflow's own 7, each waits twice as long
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
_MOST_PARAMETERS = 100
_MOST_METRICS = 500
_MOST_CHARACTERS = 500
_NO_NAME = re.compile(r"[^\w./ -]")


def track(result: BaseModel, config: BaseModel, card: Card, *, operation: str) -> None:
    """Report a stage that is done; of a result that was reused, only what an alias names."""
    if not os.environ.get(TRACKER) or (getattr(result, "reused", False) and not isinstance(result, PromotionResult)):
        return
    try:
        client = _client()
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        found = client.get_experiment_by_name(experiment)
        run = client.create_run(found.experiment_id if found else client.create_experiment(experiment), run_name=operation)
        try:
            _report(client, run.info.run_id, result, config, card)
            if isinstance(result, PromotionResult):
                _mirror(client, run.info, result)
        except BaseException:
            client.set_terminated(run.info.run_id, "FAILED")
            raise
        client.set_terminated(run.info.run_id)
    except Exception as error:
        told = masked_text(str(error))[:500]
        log.warning("The work is done, but MLflow does not have it: %s: %s", type(error).__name__, told)


def _client() -> Any:
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    with require_extra("mlflow"):
        from mlflow import MlflowClient

    uri = os.environ[TRACKER]
    return MlflowClient(uri, os.environ.get("MLFLOW_REGISTRY_URI") or uri)


def _report(client: Any, run: str, result: BaseModel, config: BaseModel, card: Card) -> None:
    from mlflow.entities import Metric, Param, RunTag

    values = dict(flat_values(masked(result.model_dump(mode="python"))))
    numbers = {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
    words = {name: value for name, value in values.items() if isinstance(value, str)}
    changed = flat_values(masked(without_defaults(config)))
    client.log_batch(
        run,
        metrics=[Metric(name, value, 0, 0) for name, value in numbers.items() if math.isfinite(value)][:_MOST_METRICS],
        params=[Param(name, str(value)[:_MOST_CHARACTERS]) for name, value in changed][:_MOST_PARAMETERS],
        tags=[
            RunTag(name, value[:_MOST_CHARACTERS]) for name, value in [*provenance().items(), *words.items()][:_MOST_PARAMETERS]
        ],
    )
    with _folder(card.files("card")) as folder:
        client.log_artifacts(run, folder)


def _mirror(client: Any, run: Any, result: PromotionResult) -> None:
    """The alias in MLflow's registry: a version of a registered model for each policy."""
    move, name = result.move, result.address.rpartition("@")[0].rpartition("/")[2]
    if not client.search_registered_models(f"name='{name}'"):
        client.create_registered_model(name)
    known = [each for each in client.search_model_versions(f"name='{name}'") if each.tags.get("checkpoint") == move.checkpoint]
    if not known:
        place = Location.of(result.checkpoint)
        with _folder({file: place.inside(file).read() for file in place.files(recursive=False)}) as folder:
            client.log_artifacts(run.run_id, folder, "policy")
        tags = {"checkpoint": move.checkpoint, "fingerprint": move.fingerprint, "address": result.address}
        known = [client.create_model_version(name, f"{run.artifact_uri}/policy", run.run_id, tags=tags)]
    client.set_registered_model_alias(name, move.alias, known[0].version)


def flat_values(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values by dotted names that MLflow takes; long lists, such as returns, are left out."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat_values(value, f"{prefix}{name}.")
        elif value is not None and not (isinstance(value, list | tuple) and len(value) > _MOST_PARAMETERS):
            yield _NO_NAME.sub("_", f"{prefix}{name}")[:250], value


@contextlib.contextmanager
def _folder(files: Mapping[str, bytes]) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="offline-") as folder:
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        yield folder
