"""Stage: take experience of any kind into a dataset of ours."""

from __future__ import annotations

from offline_core.conversion.config import ImportConfig
from offline_core.conversion.report import ImportResult
from tasks.artifacts import publish_datasets, telling
from tasks.progress import progress_shown
from tasks.stage import stage


@stage("import-dataset")
def import_dataset(config: ImportConfig, *, source: str | list[str], output: str) -> ImportResult:
    """Commits the episodes in other people's files; leaves the account of all rows as an artifact."""
    from offline_core.conversion import importing as core

    with progress_shown():
        result = core.import_dataset(config, source=source, output=output)
    with telling():
        rows: dict[str, object] = {"Source": source, "Dataset": result.dataset}
        counts: dict[str, object] = {name: count for name, count in result.counts.model_dump().items() if count}
        if result.counts.quarantined_files:  # nobody knows how many rows were in what could not be read of them
            counts |= {name: f"at least {getattr(result.counts, name):,}" for name in ("rows", "quarantined_rows")}
        rows |= {name.replace("_", " ").capitalize(): count for name, count in counts.items()}
        rows |= {"Observation space": result.observation_space, "Action space": result.action_space}
        if result.notes:
            rows["Notes"] = " ".join(result.notes)
        if result.replaced:
            rows["Replaces"] = result.replaced
        if result.quarantine:
            rows["Not read, and why"] = result.quarantine
        publish_datasets(
            "Import",
            {"imported": result.dataset},
            made=[result.dataset],
            rows=rows,
            key="import-card",
            operation="import_dataset",
            config=config,
            reused=result.reused,
        )
    return result
