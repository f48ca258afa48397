"""The stages as users call them, made from the list of stages when they are first used; the stub beside this file has types."""

from collections.abc import Callable
from typing import Any

from offline_core.door import function_of
from offline_core.runtime.stage import STAGES


def __getattr__(name: str) -> Callable[..., Any]:
    for stage in STAGES.values():
        if stage.attribute == name:
            made: Callable[..., Any] = globals().setdefault(name, function_of(stage))
            return made
    raise AttributeError(f"There is no stage {name}; there are {', '.join(stage.attribute for stage in STAGES.values())}.")
