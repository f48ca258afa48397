"""Stage: record episodes of a policy."""

from __future__ import annotations

from offline_core.recording.config import RecordingConfig, RecordingExport
from offline_core.recording.result import RecorderShare, RecordingResult
from tasks.artifacts import publish_datasets, telling
from tasks.progress import progress_shown
from tasks.stage import stage


@stage("record-episodes")
def record_episodes(
    config: RecordingConfig, *, policy: str, output: str, export: RecordingExport | None = None
) -> RecordingResult:
    """Plays the policy and commits one dataset version; leaves histograms of return and length as an artifact."""
    from offline_core.recording import record as core

    with progress_shown():
        result = core.record_episodes(config, policy=policy, output=output, export=export)
    with telling():
        ref, statistics = result.dataset, result.statistics
        rows: dict[str, object] = {
            "Dataset": ref,
            "Policy": f"{policy}, fingerprint {result.policy}",
            "Environment": result.environment,
            "Return": f"{statistics.returns.mean:.1f} ± {statistics.returns.std:.1f}",
            "Terminated": f"{statistics.terminated:,} of {statistics.episodes:,} episodes, {statistics.truncated:,} truncated",
            "Bytes per step": ref.bytes / ref.steps,
            "Seconds": result.seconds,
            **({} if result.export is None else {"Exported": f"{result.export.output}, as {result.export.format}"}),
            **{f"Recorder {number}": _share(recorder) for number, recorder in enumerate(result.recorders, 1)},
        }
        publish_datasets(
            "Recording",
            {"recorded": ref},
            made=[ref],
            rows=rows,
            key="recording-card",
            operation="record_episodes",
            config=config,
            reused=result.reused,
        )
    return result


def _share(recorder: RecorderShare) -> str:
    speed = recorder.steps / max(recorder.seconds, 1e-9)
    return f"{recorder.episodes:,} episodes, {recorder.steps:,} steps on {recorder.node}, {speed:,.0f} steps a second"
