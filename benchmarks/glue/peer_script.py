"""From the log to a policy and estimates, glued of pandas, d3rlpy and SCOPE-RL: `python peer_script.py LOG.csv`."""

import sys

import d3rlpy
import numpy as np
import pandas as pd
from scope_rl.ope import CreateOPEInput, OffPolicyEvaluation
from scope_rl.ope.discrete import DirectMethod, DoublyRobust, PerDecisionImportanceSampling, SelfNormalizedPDIS
from scope_rl.policy.head import EpsilonGreedyHead

SPEEDS, MINUTES, GAMMA = ["slow", "normal", "fast"], 40, 0.99

# read, clean
table = pd.read_csv(sys.argv[1]).drop_duplicates(["shift", "minute"]).sort_values(["shift", "minute"])
table["rush"] = (table["rush"] == "yes").astype(np.float32)
table["speed"] = table["speed"].map({name: number for number, name in enumerate(SPEEDS)})
shifts = table["shift"].unique()
np.random.default_rng(0).shuffle(shifts)
learned = table[table["shift"].isin(shifts[: len(shifts) // 2])]
judged = table[~table["shift"].isin(shifts[: len(shifts) // 2])]


def columns(rows):
    last = (rows["minute"] == MINUTES - 1).to_numpy()
    return {
        "observations": rows[["waiting", "rush"]].to_numpy(np.float32),
        "actions": rows["speed"].to_numpy(),
        "rewards": rows["profit"].to_numpy(np.float32),
        "terminals": np.zeros(len(rows), bool),
        "timeouts": last,
    }


# learn
d3rlpy.seed(0)
scaler = d3rlpy.preprocessing.StandardObservationScaler()
dataset = d3rlpy.dataset.MDPDataset(**columns(learned), action_size=3)
policy = d3rlpy.algos.DiscreteCQLConfig(observation_scaler=scaler, batch_size=256).create(device="cpu:0")
policy.fit(dataset, n_steps=20_000, n_steps_per_epoch=10_000, show_progress=False, save_interval=1_000)

# estimate
held = columns(judged)
logged = {
    "size": len(judged),
    "n_trajectories": len(judged) // MINUTES,
    "step_per_trajectory": MINUTES,
    "action_type": "discrete",
    "n_actions": 3,
    "action_dim": 1,
    "action_keys": SPEEDS,
    "action_meaning": None,
    "state_dim": 2,
    "state_keys": ["waiting", "rush"],
    "state": held["observations"],
    "action": held["actions"],
    "reward": held["rewards"],
    "done": held["timeouts"].astype(int),
    "terminal": held["timeouts"].astype(int),
    "info": {},
    "pscore": judged["probability"].to_numpy(),
    "behavior_policy": "desk",
    "dataset_id": 0,
}
greedy = EpsilonGreedyHead(policy, n_actions=3, epsilon=0.0, name="cql", random_state=0)
inputs = CreateOPEInput(gamma=GAMMA).obtain_whole_inputs(
    logged, [greedy], require_value_prediction=True, n_steps=10_000, random_state=0
)
estimators = [DirectMethod(), PerDecisionImportanceSampling(), SelfNormalizedPDIS(), DoublyRobust()]
estimation = OffPolicyEvaluation(logged, ope_estimators=estimators)
intervals = estimation.estimate_intervals(inputs, n_bootstrap_samples=1_000, random_state=0)
discounted = held["rewards"].reshape(-1, MINUTES) @ GAMMA ** np.arange(MINUTES)
print("today", discounted.mean())
for name, interval in intervals["cql"].items():
    print(name, interval)

# for the benchmark: what it does at each state
states = np.array([[waiting, rush] for rush in (0, 1) for waiting in range(21)], np.float32)
print("chances", np.eye(3)[policy.predict(states)].reshape(2, 21, 3).tolist())
