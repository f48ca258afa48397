"""Stage: from one of our two formats to the other."""

from __future__ import annotations

from offline_core.conversion.config import ConversionConfig
from offline_core.conversion.converting import ConversionResult
from offline_core.storage.dataset import DatasetRef
from tasks.artifacts import publish_datasets, telling
from tasks.progress import progress_shown
from tasks.stage import stage


@stage("convert-table")
def convert_table(config: ConversionConfig, *, dataset: str, output: str, version: int | None = None) -> ConversionResult:
    """Writes the same episodes in the format wanted; leaves what they take in both as an artifact."""
    from offline_core.conversion import converting as core

    with progress_shown():
        result = core.convert_table(config, dataset=dataset, output=output, version=version)
    with telling():
        rows: dict[str, object] = {"From": result.source, "To": result.dataset, "Format": config.format}
        rows["Bytes per step"] = f"{_per_step(result.source):.1f} before, {_per_step(result.dataset):.1f} after"
        publish_datasets(
            "Conversion",
            {"converted": result.dataset},
            made=[result.dataset],
            rows=rows,
            key="conversion-card",
            operation="convert_table",
            config=config,
            reused=result.reused,
        )
    return result


def _per_step(ref: DatasetRef) -> float:
    return ref.bytes / max(1, ref.steps)
