"""Flow: write a policy for other programs."""

from flows.local_flow import flow
from offline_core.policies.export_config import PolicyExportConfig, PolicyExportResult
from tasks.stages import export_policy as export_policy_task


@flow(name="export-policy")
def export_policy(
    policy: str = "runs/policy/best",
    output: str = "runs/exported",
    config: PolicyExportConfig = PolicyExportConfig(),
) -> PolicyExportResult:
    """Writes a policy as ONNX or for torch.export, from raw observations to actions, and shows that it does the same there.

    Args:
        policy: Checkpoint of the policy to export.
        output: Folder for the models and export.json; an export that is there is replaced.
        config: Formats, and how exactly they have to agree with the policy.
    """
    return export_policy_task(config, policy=policy, output=output)
