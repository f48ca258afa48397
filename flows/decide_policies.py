"""Flow: which of several policies may replace what runs today, told from a log."""

from flows.local_flow import flow
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.result import DecisionResult
from offline_core.runtime.ray_session import ray_scope
from tasks.crash import crashing
from tasks.stages import decide_policies as decide_policies_task


@flow(name="decide-policies", flow_run_name="decide-{config.seed}")
def decide_policies(
    dataset: str = "runs/recording",
    candidates: list[str] = ["runs/policy/best"],  # noqa: B006 - what a form shows
    output: str = "runs/decision",
    version: int | None = None,
    config: DecisionConfig = DecisionConfig(),
) -> DecisionResult:
    """Holds policies against what runs today, on recorded episodes that none of them learned from or was chosen by.

    Args:
        dataset: Folder of the log.
        candidates: Checkpoints of the policies.
        output: Folder for the decision and both sides of the log.
        version: Version to read; the latest if none is given.
        config: What runs today, how the log is split, the risk, guardrails and the estimates.
    """
    with crashing(), ray_scope():  # a model of what acted may start Ray
        return decide_policies_task(config, dataset=dataset, candidates=candidates, output=output, version=version)
