"""From a log to a policy and a word on its worth, by our script and by one that is glued of pandas, d3rlpy and SCOPE-RL.

    python -m benchmarks.glue runs/glue --peer glue/bin/python

Each script is a process of its own that ends with what its policies do at each state; the simulator that made the
log then says what they are worth. Needs an environment with d3rlpy 2.8, scope-rl 0.2.1 and pandas for the peer.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.glue.log import value_of, write

SCRIPTS = Path(__file__).parent
GAMMA = 0.99
"""In both scripts."""
FOR_BENCHMARK = "# for the benchmark"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer", help="Python of the peer's environment; left out: ours alone")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    print(json.dumps({"side": "log", "value": write(folder / "log.csv", GAMMA)}))
    ours = [sys.executable, "-m", "benchmarks.glue.our_script", str(folder / "log.csv"), str(folder)]
    print(json.dumps({"side": "ours", **ran(ours, SCRIPTS / "our_script.py", Path.cwd())}), flush=True)
    if arguments.peer:
        peer = [arguments.peer, "-W", "ignore", str(SCRIPTS / "peer_script.py"), str(folder / "log.csv")]
        print(json.dumps({"side": "peer", **ran(peer, SCRIPTS / "peer_script.py", folder)}), flush=True)


def ran(command: list[str], script: Path, folder: Path) -> dict[str, Any]:
    """Run a script in a folder with one thread; what it printed is shown."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    begin = time.perf_counter()
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, cwd=folder)
    seconds = time.perf_counter() - begin
    print(*[line for line in done.stdout.splitlines() if not line.startswith("chances")], sep="\n")
    policies = [json.loads(line.removeprefix("chances ")) for line in done.stdout.splitlines() if line.startswith("chances ")]
    lines = script.read_text().split(FOR_BENCHMARK)[0].splitlines()
    code = [line for line in lines if line.strip() and not line.lstrip().startswith(("#", '"'))]
    return {
        "seconds": round(seconds, 1),
        "lines": len(code),
        "values": [round(value_of(policy, GAMMA), 3) for policy in policies],
    }


if __name__ == "__main__":
    main()
