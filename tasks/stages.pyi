"""Written by `python -m tests.written`."""

from offline_core.data.curation.compact import compact as compact
from offline_core.data.curation.converting import convert as convert
from offline_core.data.curation.merge import merge as merge
from offline_core.data.curation.prune import prune as prune
from offline_core.data.curation.split import split as split
from offline_core.data.formats.exporting import export as export
from offline_core.data.formats.publishing import publish as publish
from offline_core.data.importing.importing import import_data as import_data
from offline_core.data.quality.check import check as check
from offline_core.judging.decisions.decide import decide as decide
from offline_core.judging.estimation.estimate import estimate as estimate
from offline_core.judging.ranking.outliers import outliers as outliers
from offline_core.judging.sweeps.sweep import sweep as sweep
from offline_core.keeping.homepage.report import report as report
from offline_core.keeping.promotion.promote import promote as promote
from offline_core.keeping.promotion.rollback import rollback as rollback
from offline_core.keeping.retention.vacuum import vacuum as vacuum
from offline_core.learning.experts.train import train_expert as train_expert
from offline_core.learning.fine_tuning.fine_tune import fine_tune as fine_tune
from offline_core.learning.train import train as train
from offline_core.policies.evaluation import evaluate as evaluate
from offline_core.policies.export import export_policy as export_policy
from offline_core.policies.recording.mixing import mix as mix
from offline_core.policies.recording.record import record as record
