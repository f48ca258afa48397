"""Offers every flow to a running Prefect server, from one process and without a work pool: `python -m deployments.serve`."""

from __future__ import annotations

from prefect import serve

from flows.evaluate_policy import evaluate_policy
from flows.expert_to_policy import expert_to_policy
from flows.prune_dataset import prune_dataset
from flows.record_episodes import record_episodes
from flows.train_expert import train_expert
from flows.train_policy import train_policy

FLOWS = (expert_to_policy, train_expert, record_episodes, prune_dataset, train_policy, evaluate_policy)


def main() -> None:
    """Serves until it is interrupted; one run at a time, for a run takes the whole machine."""
    serve(*(flow.to_deployment(name="default") for flow in FLOWS), limit=1)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
