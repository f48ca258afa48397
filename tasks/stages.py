"""The stages as Prefect tasks, made from the table: each calls the core, shows its progress and publishes a card.

`prune_dataset(config, dataset=…, output=…)` and the like take what the functions of the core take, and return the same.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tasks.artifacts import publish, warn_without_card
from tasks.cards import CARDS
from tasks.headlines import headline_of
from tasks.progress import progress_shown
from tasks.stage import stage, url_of_ui
from tasks.table import STAGES, Stage, load
from tasks.tracking import track

if TYPE_CHECKING:  # the core's functions are imported when they run: many bring Torch or Ray with them
    from offline_core.data.curation.compact import compact_dataset as compact_dataset
    from offline_core.data.curation.converting import convert_table as convert_table
    from offline_core.data.curation.merge import merge_datasets as merge_datasets
    from offline_core.data.curation.prune import prune_dataset as prune_dataset
    from offline_core.data.curation.split import split_dataset as split_dataset
    from offline_core.data.formats.exporting import export_dataset as export_dataset
    from offline_core.data.formats.publishing import publish_dataset as publish_dataset
    from offline_core.data.importing.importing import import_dataset as import_dataset
    from offline_core.data.quality.check import check_dataset as check_dataset
    from offline_core.judging.decisions.decide import decide
    from offline_core.judging.estimation.estimate import estimate_policy as estimate_policy
    from offline_core.judging.ranking.outliers import find_outliers as find_outliers
    from offline_core.judging.sweeps.sweep import sweep_settings as sweep_settings
    from offline_core.keeping.homepage.report import report
    from offline_core.keeping.promotion.promote import promote_policy as promote_policy
    from offline_core.keeping.promotion.rollback import rollback_policy as rollback_policy
    from offline_core.keeping.retention.vacuum import vacuum
    from offline_core.learning.experts.train import train_expert as train_expert
    from offline_core.learning.fine_tuning.fine_tune import fine_tune_policy as fine_tune_policy
    from offline_core.learning.train import train_policy as train_policy
    from offline_core.policies.evaluation.evaluate import evaluate_policy as evaluate_policy
    from offline_core.policies.export import export_policy as export_policy
    from offline_core.policies.recording.mixing import mix_datasets as mix_datasets
    from offline_core.policies.recording.record import record_episodes as record_episodes

    decide_policies = decide
    publish_report = report
    vacuum_datasets = vacuum


def _task_of(entry: Stage) -> Any:
    def run(config: Any, **arguments: Any) -> Any:
        if "runs_url" in type(config).model_fields and not config.runs_url and (ui := url_of_ui()):
            config = config.model_copy(update={"runs_url": f"{ui.rstrip('/')}/runs"})
        with progress_shown():
            result = load(entry.core)(config, **arguments)
        with warn_without_card():
            page = CARDS[entry.operation](result, config, **arguments)
            if page.card.headline is None:
                page = page._replace(card=dataclasses.replace(page.card, headline=headline_of(result)))
            track(result, config, page.card, operation=entry.operation)
            publish(
                page,
                key=entry.card,
                operation=entry.operation,
                config=config,
                reused=result.reused,
            )
        if entry.gate is not None:
            load(entry.gate)(result, config)
        return result

    run.__name__ = run.__qualname__ = entry.operation
    run.__doc__ = entry.help
    return stage(entry.name, task_run_name=entry.run_name)(run)


globals().update({name: _task_of(entry) for name, entry in STAGES.items()})
