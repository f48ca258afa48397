"""From the log to a policy, an estimate and a decision, by ours: `python -m benchmarks.glue.our_script LOG.csv FOLDER`."""

import sys

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
run = offline.train(learned, output=f"{folder}/policy", algorithm="cql", optimizer={"max_updates": 20_000}, seed=0)
print(offline.decide(judged, [run.best], output=f"{folder}/decision", estimate={"explore": False}))
