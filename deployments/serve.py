"""Offers every flow to a running Prefect server, from one process and without a work pool: `python -m deployments.serve`."""

from __future__ import annotations

from prefect import serve

from flows.check_dataset import check_dataset
from flows.compact_dataset import compact_dataset
from flows.convert_table import convert_table
from flows.evaluate_policy import evaluate_policy
from flows.expert_to_policy import expert_to_policy
from flows.export_dataset import export_dataset
from flows.export_policy import export_policy
from flows.import_dataset import import_dataset
from flows.merge_datasets import merge_datasets
from flows.mix_datasets import mix_datasets
from flows.prune_dataset import prune_dataset
from flows.record_episodes import record_episodes
from flows.split_dataset import split_dataset
from flows.train_expert import train_expert
from flows.train_policy import train_policy

FLOWS = (
    expert_to_policy,
    train_expert,
    record_episodes,
    import_dataset,
    convert_table,
    check_dataset,
    prune_dataset,
    compact_dataset,
    split_dataset,
    merge_datasets,
    mix_datasets,
    export_dataset,
    train_policy,
    evaluate_policy,
    export_policy,
)


def main() -> None:
    """Serves until it is interrupted; one run at a time, for a run takes the whole machine."""
    serve(*(flow.to_deployment(name="default") for flow in FLOWS), limit=1)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
