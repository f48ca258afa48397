"""Runs one stage in this process: its work, its card, its gate. Knows nothing of Prefect, and so needs no server."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from offline_core.keeping.cards import keep_stage_card
from offline_core.keeping.tracking import tracked
from offline_core.runtime.stage import Stage, load


def perform(
    stage: Stage[..., Any],
    config: Any,
    arguments: Mapping[str, Any],
    *,
    runs_url: str | None = None,
) -> Any:
    """Return the result of a stage, whose card lies next to it; `observe_cards` shows it, also where the gate refuses the
    result.

    Arguments:
        runs_url: of a UI, whose runs a report then links to.

    Raises:
        OfflineError: of the stage, or of its gate where the result does not meet the config.
    """
    if runs_url and "runs_url" in type(config).model_fields and not config.runs_url:
        config = config.model_copy(update={"runs_url": f"{runs_url.rstrip('/')}/runs"})
    if getattr(config, "seed", 0) is None:  # drawn here, so that the card repeats what was done
        config = config.model_copy(update={"seed": secrets.randbelow(2**31)})
    with tracked(config, operation=stage.name, has_metrics=stage.has_metrics) as report:
        result = stage(config, **arguments)
        card = keep_stage_card(stage, result, config, arguments)
        report(result, card)
    if stage.gate is not None:
        load(stage.gate)(result, config)
    return result
