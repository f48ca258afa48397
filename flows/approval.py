"""A run that waits until a person has said yes or no."""

from prefect.flow_runs import pause_flow_run
from prefect.input import RunInput
from pydantic import Field

from offline_core.judging.decisions.result import DecisionResult

WAIT_SECONDS = 24 * 3600
"""A run without an answer fails then, and nothing is moved."""
POLL_SECONDS = 5


class Approval(RunInput):
    """What the form of a paused run asks for."""

    approve: bool = Field(False, description="Promote the policy. Off: leave everything as it is.")
    by: str = Field(min_length=1, max_length=200, description="Your name, for the history of the registry.")


def approval_of(decision: DecisionResult, address: str) -> Approval:
    """Pause the run until the form is filled in: "Resume" in the UI, or `prefect flow-run resume`.

    Raises:
        FlowPauseTimeout: Nothing was filled in for a day.
    """
    asked = f"{decision.sentence}\n\n{address} would name {decision.checkpoint}. The card of the decision has the numbers."
    form = Approval.with_initial_data(description=asked, approve=False)
    return pause_flow_run(wait_for_input=form, timeout=WAIT_SECONDS, poll_interval=POLL_SECONDS)
