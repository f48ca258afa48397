"""The stages as Prefect tasks, made from the list of stages; the stub beside this file says their types.

`prune(config, dataset=…, output=…)` and the like take what the stages of the core take, and return the same.
"""

from offline_core.runtime.stage import STAGES
from tasks.stage import task_of

globals().update({stage.attribute: task_of(stage) for stage in STAGES.values()})
