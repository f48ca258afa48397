"""Written by `python -m tests.written`."""

from offline_core.data.curation.compact import compact_dataset as compact
from offline_core.data.curation.converting import convert_table as convert
from offline_core.data.curation.merge import merge_datasets as merge
from offline_core.data.curation.prune import prune_dataset as prune
from offline_core.data.curation.split import split_dataset as split
from offline_core.data.formats.exporting import export_dataset as export
from offline_core.data.formats.publishing import publish_dataset as publish
from offline_core.data.importing.importing import import_dataset as import_data
from offline_core.data.quality.check import check_dataset as check
from offline_core.judging.decisions.decide import decide as decide
from offline_core.judging.estimation.estimate import estimate_policy as estimate
from offline_core.judging.ranking.outliers import find_outliers as outliers
from offline_core.judging.sweeps.sweep import sweep_settings as sweep
from offline_core.keeping.homepage.report import report as report
from offline_core.keeping.promotion.promote import promote_policy as promote
from offline_core.keeping.promotion.rollback import rollback_policy as rollback
from offline_core.keeping.retention.vacuum import vacuum as vacuum
from offline_core.learning.experts.train import train_expert as train_expert
from offline_core.learning.fine_tuning.fine_tune import fine_tune_policy as fine_tune
from offline_core.learning.train import train_policy as train
from offline_core.policies.evaluation.evaluate import evaluate_policy as evaluate
from offline_core.policies.export import export_policy as export_policy
from offline_core.policies.recording.mixing import mix_datasets as mix
from offline_core.policies.recording.record import record_episodes as record
