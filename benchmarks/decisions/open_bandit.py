"""Decisions on the Open Bandit logs: what each of two policies is worth, told from the other's log, beside what it came to.

    python -m benchmarks.decisions.open_bandit FOLDER [--data OBD]

OBD is the folder `obp/dataset/obd` of the package obp (Saito et al. 2020, arXiv 2008.07146), which holds 10,000 rows of each of
three campaigns by each of two policies, random and bts (Thompson sampling). Where obp is installed it is found, and obp's
estimators say what they make of the same rows, weights and Q function. Bts learned from day to day. As a policy it is what it
did on average: a table of how often it showed each item in each of the three positions.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

import offline_core as offline
from benchmarks.decisions.clicks import policy_of
from benchmarks.figure import figure
from offline_core.data.datasets.manifest import Operation
from offline_core.judging.estimation import shrinkage
from offline_core.judging.estimation.config import EstimateConfig
from offline_core.judging.estimation.estimators import METHODS
from offline_core.judging.estimation.evidence import Evidence, gather
from offline_core.judging.estimation.q_function import chosen
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.lineage import lineage

CAMPAIGNS, POLICIES = ("all", "men", "women"), ("random", "bts")
POSITIONS = 3
WITHIN = (0.8, 1.25)
"""Bounds of a good estimate, as shares of the true value."""
THRESHOLD = 3.0
SEEN_BEFORE = 1.0
"""Views of each item that are added to those that were counted, so that none is impossible."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, default=None, help="obp/dataset/obd of the package obp")
    parser.add_argument("--campaigns", nargs="+", choices=CAMPAIGNS, default=CAMPAIGNS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    spec = importlib.util.find_spec("obp")
    data = arguments.data or (Path(spec.origin).parent / "dataset" / "obd" if spec and spec.origin else None)
    if data is None:
        raise SystemExit("Install obp, or name the folder of its data by --data.")
    right, agreed, apart = [], [], []
    for campaign in arguments.campaigns:
        logs = {name: read(data, name, campaign) for name in POLICIES}
        for name, other in (POLICIES, POLICIES[::-1]):
            made = decided(arguments.folder / campaign / name, logs[name], logs[other], name, other)
            right.append(made["inside"])
            agreed.append(made["agrees"])
            if spec is not None:
                apart.append(made["from obp"])
            figure(f"decisions.open_bandit.{campaign}.{name}_to_{other}", made.pop("value"), "clicks a view", **made)
    figure("decisions.open_bandit.inside", sum(right), "estimates", of=len(right))
    figure("decisions.open_bandit.agrees", sum(agreed), "verdicts", of=len(agreed))
    if apart:
        figure("decisions.open_bandit.apart_from_obp", float(np.max(apart)) * 1e6, "millionths")


def read(data: Path, policy: str, campaign: str) -> pl.DataFrame:
    """Positions from 0, items as actions, clicks and logarithms of propensities, in the order of time."""
    table = pl.read_csv(data / policy / campaign / f"{campaign}.csv").sort("timestamp")
    return table.select(
        position=pl.col("position").rank("dense").cast(pl.Int64) - 1,
        action=pl.col("item_id"),
        click=pl.col("click").cast(pl.Float32),
        logp=pl.col("propensity_score").log(),
        done=pl.lit(True),
    )


def decided(folder: Path, log: pl.DataFrame, other_log: pl.DataFrame, name: str, other: str) -> dict[str, Any]:
    """Decide on one policy's log whether the other one may replace it, and estimate that."""
    items = int(max(log["action"].max(), other_log["action"].max())) + 1  # type: ignore[arg-type, type-var]
    folder.mkdir(parents=True, exist_ok=True)
    log.write_parquet(folder / "log.parquet")
    imported = offline.import_data(
        str(folder / "log.parquet"),
        output=str(folder / "data"),
        mapping={"obs": "position", "actions": "action", "rewards": "click", "action_logp": "logp", "dones": "done"},
        observation_space={"space": "discrete", "n": POSITIONS},
        action_space={"space": "discrete", "n": items},
        episodes={"order": "single_step", "last_new_obs": "repeat"},
        format="table",
    )
    shown = np.zeros((POSITIONS, items)) + SEEN_BEFORE
    if other == "random":
        shown = np.ones((POSITIONS, items))
    else:
        np.add.at(shown, (other_log["position"].to_numpy(), other_log["action"].to_numpy()), 1.0)
    policy = policy_of(shown / shown.sum(axis=1, keepdims=True), imported.spaces)
    save_policy(policy, str(folder / other), operation=Operation(name="benchmark"))
    estimated = offline.estimate(str(folder / other), imported, gamma=1.0, methods=["wis", "cis", "fqe", "dr", "drs", "wdr"])
    decision = offline.decide(imported, [str(folder / other)], output=str(folder / "decision"), estimate={"gamma": 1.0})
    truth, today = float(other_log["click"].mean()), float(log["click"].mean())  # type: ignore[arg-type]
    told = estimated.estimates["wdr"]
    better = truth > today
    return {
        "value": told.value,
        "true": truth,
        "interval": [told.low, told.high],
        "inside": WITHIN[0] <= told.value / truth <= WITHIN[1] or told.low <= truth <= told.high,
        "methods": {method: estimate.value for method, estimate in estimated.estimates.items()},
        "verdict": decision.verdict,
        "agrees": decision.verdict != "refused" and (better or decision.verdict != "promote"),
        "sentence": decision.sentence[:200],
        "warnings": estimated.warnings,
        "from obp": apart_from_obp(imported, str(folder / other)) if importlib.util.find_spec("obp") else None,
    }


def apart_from_obp(dataset: Any, checkpoint: str) -> float:
    """The largest difference between our estimates and obp's, of the same rows, weights and Q function."""
    from obp.ope import estimators as obp

    policy = load_policy(checkpoint)
    config = EstimateConfig(gamma=1.0)
    evidence = gather(config, [policy], None, dataset, history=lineage(dataset.location.uri), seed=0)
    ours, theirs = estimates_of(evidence), {}
    reward = evidence.episodes[0].rewards
    weights, value, q = of_rows(evidence, policy)
    rows, actions = len(reward), q.shape[1]
    action = evidence.seen.of_steps("actions").astype(int)  # type: ignore[union-attr]
    shares = value.reshape(rows, actions, 1)
    inputs = {
        "reward": reward,
        "action": action,
        "position": np.zeros(rows, int),
        "pscore": shares[np.arange(rows), action, 0] / weights,
        "action_dist": shares,
        "estimated_rewards_by_reg_model": q.reshape(rows, actions, 1),
    }
    bare = {name: column for name, column in inputs.items() if name != "estimated_rewards_by_reg_model"}
    theirs = {
        "is": obp.InverseProbabilityWeighting().estimate_policy_value(**bare),
        "wis": obp.SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**bare),
        "fqe": obp.DirectMethod().estimate_policy_value(**inputs),
        "dr": obp.DoublyRobust().estimate_policy_value(**inputs),
        "wdr": obp.SelfNormalizedDoublyRobust().estimate_policy_value(**inputs),
        "drs": obp.DoublyRobustWithShrinkage(lambda_=THRESHOLD**2).estimate_policy_value(**inputs),
    }
    return max(abs(ours[name] - theirs[name]) for name in theirs)


def estimates_of(evidence: Evidence) -> dict[str, float]:
    """Return the estimates by method; drs has a threshold that obp accepts too."""
    [episodes] = evidence.episodes
    once = np.ones((1, episodes.groups.number))
    estimates = {name: float(METHODS[name].estimate(episodes, once)[0]) for name in ("is", "wis", "fqe", "dr", "wdr")}
    return estimates | {"drs": float(shrinkage.values(episodes, shrinkage.shrunken, THRESHOLD).mean())}


def of_rows(evidence: Evidence, policy: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (weights (N,), what the policy does (N, A), a Q function (N, A) that says of each row what ours says).

    Ours is of two parts of the log, each asked about the other. Of a row it says the value of what was done and of what the
    policy does; a function with these two numbers is all that an estimator sees.
    """
    [episodes], seen = evidence.episodes, evidence.seen
    assert episodes.model is not None and seen is not None
    inputs = torch.from_numpy(seen["inputs 0"][seen.is_step]).double()
    shares = chosen(policy.head, inputs, explore=True, samples=1, generator=torch.Generator()).numpy()
    action = seen.of_steps("actions").astype(int)
    rows = np.arange(len(action))
    done = episodes.rewards - episodes.model.errors
    others = (episodes.model.start_values - shares[rows, action] * done) / (1 - shares[rows, action])
    q = np.repeat(others[:, None], shares.shape[1], axis=1)
    q[rows, action] = done
    return np.exp(episodes.log_ratios), shares, q


if __name__ == "__main__":
    main()
