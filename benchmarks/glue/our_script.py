"""From the log to a policy, an estimate and a decision, by ours: `python -m benchmarks.glue.our_script LOG.csv FOLDER`."""

import sys

import numpy as np

import offline_core as offline

log, folder = sys.argv[1:]
data = offline.import_data(
    log,
    output=f"{folder}/log",
    mapping={
        "eps_id": "shift",
        "t": "minute",
        "obs": ["waiting", "rush"],
        "actions": "speed",
        "rewards": "profit",
        "action_prob": "probability",
    },
    columns={"encode": {"speed": {"categories": ["slow", "normal", "fast"], "form": "index"}, "rush": {"form": "index"}}},
)
learned, judged = offline.split(data, output=f"{folder}/split", held_out_fraction=0.5)
runs = [
    offline.train(learned, output=f"{folder}/{name}", algorithm=name, optimizer={"max_updates": 20_000}, seed=0)
    for name in ("cql", "marwil")
]
decision = offline.decide(judged, [run.best for run in runs], output=f"{folder}/decision")
print(decision)

# for the benchmark: how often each takes each speed at each state, as it was judged
states = np.array([[waiting, rush] for rush in (0, 1) for waiting in range(21)], np.float64)
for run in runs:
    taken = offline.load_policy(run.best).act(states.repeat(1_000, axis=0), explore=True).reshape(2, 21, 1_000)
    print("chances", [[[float(np.mean(at == speed)) for speed in range(3)] for at in row] for row in taken])
