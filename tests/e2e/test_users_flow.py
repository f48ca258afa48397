"""A flow of a user that calls ours, served from the user's own file."""

from __future__ import annotations

from pathlib import Path

import pytest

from offline_core.policies.manifest import read_policy_manifest
from tests.e2e.orchestra import Orchestra, end
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

FILE = """
from prefect import flow

from flows.stages import import_data
from flows.stages import prune
from flows.stages import train
from offline_core.runtime.config import parse
from offline_core.data.importing.config import ImportConfig
from offline_core.learning.config import TrainingConfig
from offline_core.data.curation.config import PruningConfig

MAPPING = {"eps_id": "episode", "obs": ["x", "y"], "actions": "action", "rewards": "reward", "terminateds": "done"}
IMPORT = {"mapping": MAPPING, "episodes": {"last_new_obs": "repeat"}, "action_space": {"space": "discrete", "n": 2}}
TRAINING = {"optimizer": {"batch_size": 16, "max_epochs": 1}, "evaluation": {"play": False}}


@flow
def from_csv(source: str, root: str) -> str:
    imported = import_data(source, f"{root}/imported", parse(ImportConfig, IMPORT)).dataset
    pruned = prune(imported.uri, f"{root}/pruned", imported.version, PruningConfig(where="length >= 5")).dataset
    return train(pruned.uri, f"{root}/policy", pruned.version, parse(TrainingConfig, TRAINING)).checkpoint


if __name__ == "__main__":
    from_csv.serve("mine")
"""


def test_a_served_flow_of_a_user_chains_three_of_ours(orchestra: Orchestra, fresh_root: str, tmp_path: Path) -> None:
    rows = [
        f"{episode},{t},{t / 10},{episode / 40},{t % 2},1,{int(t == 3 + episode % 8)}"
        for episode in range(40)
        for t in range(4 + episode % 8)
    ]
    (tmp_path / "log.csv").write_text("\n".join(["episode,t,x,y,action,reward,done", *rows]))
    (orchestra.root / "users_flow.py").write_text(FILE)
    serving = orchestra.start("users_flow", "users_flow")
    try:
        served = {"deployments": {"name": {"any_": ["mine"]}}}
        wait_until(lambda: orchestra.ask("POST", "/deployments/count", served) == 1, what="the flow to be served")
        run = orchestra.submit("from-csv/mine", {"source": str(tmp_path / "log.csv"), "root": fresh_root})
        orchestra.wait_for(run, "COMPLETED")
    finally:
        end(serving)
    assert read_policy_manifest(f"{fresh_root}/policy/best").operation.name == "train"
