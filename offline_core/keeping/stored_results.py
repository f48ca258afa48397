"""Results that stages stored, of whatever kind."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic_core import from_json

from offline_core.data.datasets.folder_kind import kind_of_result
from offline_core.data.store.json_files import without_checksum
from offline_core.data.store.location import Location
from offline_core.runtime.result import Result
from offline_core.runtime.stage import load

MODELS: Mapping[str, str] = {
    "check": "data.quality.result:QualityReport",
    "sweep": "judging.sweeps.result:SweepResult",
    "decision": "judging.decisions.result:DecisionResult",
    "outlier ranking": "judging.ranking.result:OutlierResult",
    "estimate": "judging.estimation.result:EstimateResult",
    "fine-tuning": "learning.result:FineTuneResult",
    "expert": "learning.result:ExpertResult",
    "training": "learning.result:TrainingResult",
    "evaluation": "policies.evaluation:EvaluationResult",
    "policy export": "policies.export_config:PolicyExportResult",
    "export": "data.formats.exporting:ExportResult",
}
"""Of results, by their kind."""


def read_result(file: Location) -> Result | None:
    """The result in a file; None if it is of no kind that is known.

    Raises:
        ValueError, LookupError, TypeError, CorruptFileError: it cannot be read.
    """
    measured = read_measured(file)
    return None if measured is None else measured[0]


def read_measured(file: Location) -> tuple[Result, set[str]] | None:
    """(the result in a file, the fingerprints of what it was made with or is of); see `read_result`."""
    values = from_json(without_checksum(file.read(), file.uri))
    if (kind := kind_of_result(values["result"])) is None:
        return None
    result: Result = load(MODELS[kind]).model_validate(values["result"])
    return result, set(values["made"].values())
