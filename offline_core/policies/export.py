"""Export a policy for other programs, and compare each export with the policy.

<output>/policy.onnx, policy.pt2    one file for each of `formats`
<output>/export.json             written last: the export is what it names
"""

from __future__ import annotations

import logging

from offline_core.data.datasets.dataset import file_hash
from offline_core.data.datasets.result_cache import StoredResult
from offline_core.data.store.location import Location
from offline_core.policies.export_config import EXPORT_FILE, PolicyExportConfig, PolicyExportResult
from offline_core.policies.manifest import find_policy
from offline_core.runtime.stage import Made, output, stage
from offline_core.runtime.stage import policy as of_policy

log = logging.getLogger(__name__)


@stage(
    "export_policy",
    version=2,
    after="report",
    arguments=(
        of_policy("export"),
        output("runs/exported", "Folder for the models; an existing export is replaced."),
    ),
    hint="-s 'formats=[torch_export]' chooses Torch.",
)
def export_policy(config: PolicyExportConfig, *, policy: str, output: str) -> Made[PolicyExportResult]:
    """Write a policy as ONNX or for Torch, and show that it does the same there.

    Each model is written, loaded again, and held against the policy on observations drawn from its space. Its graph
    begins with these: `policy.observations_of(rows)` makes them of raw rows, and the export says what their numbers are.

    Arguments:
        policy: URI of a checkpoint, or the address of a registered one.
        output: URI of a folder, created if need be; an export that is there is replaced.

    Raises:
        CheckpointError: there is no policy.
        ConfigError: a package is missing, the policy cannot be written in a format, or does something else there; nothing
            is written then.
        StorageError: the output cannot be written.
        BusyError: another run is writing there.
    """
    policy, manifest = find_policy(policy)
    location = Location.of(output)
    begun = yield StoredResult(
        PolicyExportResult,
        location,
        [manifest.parent_entry(policy)],
        file_hash,
        outputs=lambda result: [
            location.child(name).uri for name in (EXPORT_FILE, *(model.file for model in result.models.values()))
        ],
        config=config,
        starts_itself=True,
    )
    from offline_core.policies.export_work import exported  # here, for what is reused needs no Torch

    result = exported(config, policy, manifest, begun)
    worst = max(model.max_abs_difference for model in result.models.values())
    log.info("Exported %s to %s as %s; largest difference %.2g", policy, location.uri, ", ".join(result.models), worst)
    return result
