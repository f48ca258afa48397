"""Results that stages stored, of whatever kind."""

from __future__ import annotations

import json
from collections.abc import Mapping

from offline_core.data.store.json_files import without_checksum
from offline_core.data.store.location import Location
from offline_core.runtime.result import Result
from offline_core.runtime.stage import load

KINDS: Mapping[str, frozenset[str]] = {
    "data.quality.result:QualityReport": frozenset({"findings", "verdict"}),
    "judging.sweeps.result:SweepResult": frozenset({"settings", "score"}),
    "judging.decisions.result:DecisionResult": frozenset({"verdict", "candidates"}),
    "judging.ranking.result:OutlierResult": frozenset({"scores", "threshold"}),
    "judging.estimation.result:OffPolicyResult": frozenset({"estimates", "recorded"}),
    "learning.fine_tuning.result:FineTuneResult": frozenset({"start_return", "curve"}),
    "learning.experts.result:ExpertResult": frozenset({"env_steps", "curve"}),
    "learning.result:TrainingResult": frozenset({"losses", "epochs"}),
    "policies.evaluation.result:EvaluationResult": frozenset({"returns", "lengths"}),
    "policies.export_config:PolicyExportResult": frozenset({"models", "policy_latency"}),
    "data.formats.exporting:ExportResult": frozenset({"source", "output", "format"}),
}
"""Results by fields that no other kind before has."""


def read_result(file: Location) -> Result | None:
    """The result in a file; None if it is of no kind that is known.

    Raises:
        ValueError, LookupError, TypeError, CorruptFileError: it cannot be read.
    """
    values = json.loads(without_checksum(file.read(), file.uri))["result"]
    kind = next((kind for kind, fields in KINDS.items() if fields <= values.keys()), None)
    if kind is None:
        return None
    result: Result = load(kind).model_validate(values)
    return result
