"""Decisions on logs of one step (clicks, prices, offers) whose truth is known in closed form.

    python -m benchmarks.decisions.clicks FOLDER [--first-seed 0] [--logs 72] [--updates 200]

Sixty logs of 500 to 200,000 rows, 2 to 1,000 actions and rewards at 0.1 to 20 % can be judged if they are long enough, twelve
must be refused. Each has five candidates: a better one, a slightly better one, one that does other things and is worth the same
to the last digit, a worse one, and the behaviour itself; or only the last three. What is in FOLDER is not made again.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from scipy.stats import norm

import offline_core as offline
from benchmarks.decisions.__main__ import CLEAR, SMALL
from benchmarks.figure import figure
from offline_core.data.datasets.manifest import Operation
from offline_core.errors import DataError
from offline_core.judging.decisions.verdict import PROMISING
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy

RATES = (0.001, 0.005, 0.02, 0.08, 0.2)
ROWS = (500, 2_000, 10_000, 50_000, 200_000)
ACTIONS = (2, 5, 20, 100, 1_000)
CONTEXTS = (1, 6, 40)
MOST_CELLS = 20_000_000
"""Rows times actions; logs with more have fewer actions."""
FLAWS = ("one action a context", "candidates apart", "of another policy", "base 2", "no logs", "minus the logs")
EFFECTIVE_ROWS, EFFECTIVE_CLICKS = 5_000, 30
"""Of a clear improvement, and of a log that may not be refused."""
ENOUGH_ROWS = 1_000


@dataclass(frozen=True)
class Log:
    """One log of the benchmark."""

    seed: int
    rate: float
    rows: int
    actions: int
    contexts: int
    known: bool
    """The probabilities of its actions are recorded."""
    has_better: bool
    noisy: bool
    """Observations have two numbers that mean nothing, so that no two rows are equal."""
    flaw: str = ""
    """What it must be refused for, one of `FLAWS`."""

    @property
    def name(self) -> str:
        return f"{self.seed}-{self.rate:g}-{self.rows}x{self.actions}-{self.flaw.replace(' ', '-') or self.known}"


def all_logs(first_seed: int = 0) -> list[Log]:
    """Sixty logs that can be judged, if they are long enough, and twelve that must be refused."""
    logs = []
    for number in range(60):
        rate, rows = RATES[number % 5], ROWS[number // 5 % 5]
        actions = min(ACTIONS[(number + number // 5 + number // 25) % 5], max(2, MOST_CELLS // rows))
        contexts, known = CONTEXTS[number % 3], number // 25 != 1
        better = number % 7 not in (1, 4)
        logs.append(Log(first_seed + number, rate, rows, actions, contexts, known, better, noisy=number % 4 == 3))
    for number in range(12):
        rows, actions = ((5_000, 5), (20_000, 20))[number // 6]
        known = number != 6  # without any exploration, and without probabilities
        logs.append(Log(first_seed + 60 + number, 0.05, rows, actions, 6, known, True, False, FLAWS[number % 6]))
    return logs


@dataclass(frozen=True)
class World:
    """Contexts (X,) by how frequent they are, and (X, A): the chance of a reward, and of each action."""

    frequency: np.ndarray
    reward: np.ndarray
    behaviour: np.ndarray

    @classmethod
    def of(cls, log: Log, rng: np.random.Generator) -> World:
        shape = log.contexts, log.actions
        worth = np.exp(
            0.4 * rng.normal(size=(log.contexts, 1)) + 0.6 * rng.normal(size=log.actions) + 0.4 * rng.normal(size=shape)
        )
        reward = np.minimum(log.rate * worth / worth.mean(), 0.9)
        liked = rng.choice([0.0, 0.5]) * rng.normal(size=shape) + rng.choice([0.0, 0.3]) * np.log(worth)
        behaviour = softmax(liked)
        if log.flaw == "one action a context":
            behaviour = np.eye(log.actions)[rng.integers(0, log.actions, log.contexts)]
        if log.flaw == "candidates apart":
            behaviour = behaviour * (np.arange(log.actions) < log.actions // 2)
            behaviour /= behaviour.sum(axis=1, keepdims=True)
        return cls(rng.dirichlet(np.full(log.contexts, 5.0)), reward, behaviour)

    def value(self, policy: np.ndarray) -> float:
        return float(self.frequency @ (policy * self.reward).sum(axis=1))

    def second_moment(self, policy: np.ndarray) -> float:
        """Of the weights: rows over effective rows."""
        with np.errstate(invalid="ignore", divide="ignore"):
            squares = np.where(policy > 1e-12, policy**2 / self.behaviour, 0.0)
        return float(self.frequency @ squares.sum(axis=1))

    def error(self, policy: np.ndarray, rows: int) -> float:
        """Standard error of the best estimate of the difference to the behaviour: of one that knows the chances of rewards."""
        ratio = np.where(self.behaviour > 0, policy / np.maximum(self.behaviour, 1e-300), 0.0)
        noise = (self.behaviour * (ratio - 1) ** 2 * self.reward * (1 - self.reward)).sum(axis=1)
        apart = ((policy - self.behaviour) * self.reward).sum(axis=1)
        return float((self.frequency @ (noise + (apart - self.frequency @ apart) ** 2) / rows) ** 0.5)

    def candidates(self, log: Log, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return the probabilities of the actions by candidate, (X, A)."""
        if log.flaw == "candidates apart":
            unseen = softmax(np.where(np.arange(log.actions) >= log.actions // 2, rng.normal(size=self.reward.shape), -12.0))
            return {"better": unseen, "worse": np.roll(unseen, 1, axis=0)}
        base, worth = np.maximum(self.behaviour, 1e-6), np.log(self.reward / log.rate)
        strength = rng.uniform(1.5, 3.0)
        best, slight, worse = (softmax(np.log(base) + by * worth) for by in (strength, 0.3 * strength, -0.8))
        gain, loss = self.value(best) - self.value(base), self.value(base) - self.value(worse)
        level = (loss * best + gain * worse) / (gain + loss)
        candidates = {"better": best, "slightly better": slight} if log.has_better else {}
        candidates |= {"worse": worse, "same": base / base.sum(axis=1, keepdims=True)}
        return candidates | ({} if np.abs(level - candidates["same"]).max() < 1e-4 else {"level": level})


def softmax(logits: np.ndarray) -> np.ndarray:
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def policy_of(chances: np.ndarray, spaces: Any) -> Policy:
    """A table of chances as a layer on the context, one-hot."""
    policy = Policy(*spaces, NetworkConfig(hidden_sizes=[]))
    layer: Any = policy.head.logits  # type: ignore[attr-defined]
    with torch.no_grad():
        layer.bias.zero_()
        layer.weight.zero_()
        layer.weight[:, : len(chances)] = torch.as_tensor(np.log(chances).T, dtype=torch.float32)
    return policy


def make(log: Log, folder: Path) -> dict[str, Any]:
    """Draw and import a log, write its candidates, and return what is true of them."""
    log_folder = folder / "logs" / log.name
    if (done := log_folder / "truth.json").exists():
        return json.loads(done.read_text())  # type: ignore[no-any-return]
    log_folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(log.seed)
    world = World.of(log, rng)
    x = rng.choice(log.contexts, log.rows, p=world.frequency)
    below = world.behaviour.cumsum(axis=1)
    a = np.minimum((rng.random(log.rows)[:, None] >= below[x]).sum(axis=1), log.actions - 1)
    seen = np.eye(log.contexts, dtype=np.float32)[x]
    if log.noisy:
        seen = np.concatenate([seen, rng.normal(size=(log.rows, 2)).astype(np.float32)], axis=1)
    columns = {f"x{number}": column for number, column in enumerate(seen.T)}
    clicked = (rng.random(log.rows) < world.reward[x, a]).astype(np.float32)
    table = pl.DataFrame({**columns, "a": a, "r": clicked, "logp": recorded(log, world.behaviour[x, a]), "done": True})
    table.write_parquet(log_folder / "log.parquet")
    names = {"obs": [*columns], "actions": "a", "rewards": "r", "dones": "done"}
    data = offline.import_data(
        str(log_folder / "log.parquet"),
        output=str(log_folder / "data"),
        mapping=names | ({"action_logp": "logp"} if log.known else {}),
        action_space={"space": "discrete", "n": log.actions},
        episodes={"order": "single_step", "last_new_obs": "repeat"},
        format="table",
    )
    value, truth = world.value(world.behaviour), {}
    for name, chances in world.candidates(log, rng).items():
        uri = str(log_folder / name.replace(" ", "-"))
        save_policy(policy_of(chances, data.spaces), uri, operation=Operation(name="benchmark"))
        truth[uri] = {
            "name": name,
            "difference": 0.0 if name in ("level", "same") else world.value(chances) - value,
            "effective_rows": log.rows / world.second_moment(chances),
            "value": world.value(chances),
            "error": world.error(chances, log.rows),
        }
    made = {"data": str(log_folder / "data"), "behaviour": value, "candidates": truth}
    done.write_text(json.dumps(made))
    return made


def recorded(log: Log, chances: np.ndarray) -> np.ndarray:
    """What the log says of the chances of its actions: their logarithms, or something else that people really write there."""
    said = {
        "of another policy": np.log(np.full(len(chances), 1 / log.actions)) + np.where(np.arange(len(chances)) % 2, 0.7, -0.7),
        "base 2": np.log2(chances),
        "no logs": chances,
        "minus the logs": -np.log(chances),
    }
    return np.asarray(said.get(log.flaw, np.log(chances)), np.float64)


def judged(log: Log, folder: Path, name: str, updates: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return what came of the decision next to what is true; a refused import counts as a refused decision."""
    none: dict[str, Any] = {"false_promotion": False, "found": False, "covered": {}, "verdict": "error"}
    never = {"must_be_refused": bool(log.flaw), "must_be_judged": not log.flaw, "clear": False, "possible": 0.0}
    try:
        made = make(log, folder)
    except DataError as error:
        return none | never | {"sentence": str(error)[:300]}
    fqe = {"updates": updates, "learning_rate": 3e-3, "batch_size": 128, "network": SMALL}
    config = {"estimate": {"gamma": 1.0, "resamples": 400, "fqe": fqe}, "examine_updates": 200, "clone_updates": 1_000}
    truth = made["candidates"]
    best = max(truth.values(), key=lambda candidate: candidate["difference"])
    clicks = max(
        min(1.0, candidate["value"]) * candidate["effective_rows"]
        for candidate in truth.values()
        if candidate["name"] != "same"
    )
    known = {
        "must_be_refused": bool(log.flaw),
        "must_be_judged": not log.flaw
        and clicks >= EFFECTIVE_CLICKS
        and max(candidate["effective_rows"] for candidate in truth.values() if candidate["name"] != "same") >= ENOUGH_ROWS,
        "clear": not log.flaw and best["difference"] >= CLEAR * made["behaviour"] and best["effective_rows"] >= EFFECTIVE_ROWS,
        "possible": float(norm.sf(norm.isf(PROMISING) - best["difference"] / (2**0.5 * max(best["error"], 1e-12)))),
    }
    try:
        output = str(folder / name / log.name)
        result = offline.decide(made["data"], [*truth], output=output, seed=log.seed, **(config | settings))
    except DataError as error:
        return none | known | {"sentence": str(error)[:300]}
    candidates = [candidate for candidate in result.candidates if candidate.judged and not candidate.reasons]
    covered = {
        truth[candidate.checkpoint]["name"]: candidate.judged.low
        <= truth[candidate.checkpoint]["difference"]
        <= candidate.judged.high
        for candidate in candidates
        if candidate.judged and result.verdict != "refused"
    }
    tested = [result.checkpoint] if result.verdict == "promote" else result.worth_testing
    return known | {
        "verdict": result.verdict,
        "false_promotion": result.verdict == "promote" and truth[result.checkpoint]["difference"] <= 0,
        "found": any(truth[uri]["difference"] > 0 for uri in tested),
        "covered": covered,
        "sentence": result.sentence[:300],
    }


def report(rows: list[dict[str, Any]]) -> None:
    """The figures over all logs."""
    sound = [decision for decision in rows if not decision["must_be_refused"]]
    clear = [decision for decision in sound if decision["clear"]]
    covered = [inside for decision in sound for inside in dict(decision["covered"]).values()]
    unsound = [decision for decision in rows if decision["must_be_refused"]]
    enough = [decision for decision in sound if decision["must_be_judged"]]
    refused = ("refused", "error")

    def share(name: str, flags: list[bool], **more: Any) -> None:
        figure(f"decisions.{name}.bandit", float(np.mean(flags)) if flags else np.nan, "share", of=len(flags), **more)

    made = sum(decision["verdict"] == "promote" for decision in rows)
    share("false_promotions", [decision["false_promotion"] for decision in rows], made=made)
    share("coverage", covered)
    possible = float(np.mean([decision["possible"] for decision in clear])) if clear else np.nan
    share("power", [decision["found"] for decision in clear], possible=round(possible, 3))
    figure("decisions.silent.bandit", sum(decision["verdict"] not in refused for decision in unsound), "logs", of=len(unsound))
    share("wrongly_refused", [decision["verdict"] in refused for decision in enough])
    for verdict in ("promote", "test", "collect", "keep", "refused", "error"):
        figure(f"decisions.verdicts.{verdict}.bandit", sum(decision["verdict"] == verdict for decision in sound), "logs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--logs", type=int, default=None, help="only the first so many of a fixed shuffle")
    parser.add_argument("--first-seed", type=int, default=0, help="of the logs: others are drawn by others")
    parser.add_argument("--most-rows", type=int, default=None, help="leave out logs with more")
    parser.add_argument("--updates", type=int, default=200, help="of each Q function")
    parser.add_argument("--settings", default="{}", help="parameters of the decision, as JSON")
    parser.add_argument("--name", default="decisions", help="folder of the decisions, below FOLDER")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    logs = all_logs(arguments.first_seed)
    logs = [logs[number] for number in np.random.default_rng(0).permutation(len(logs))]
    rows = []
    for log in [log for log in logs if arguments.most_rows is None or log.rows <= arguments.most_rows][: arguments.logs]:
        start = time.process_time()
        row = judged(log, arguments.folder, arguments.name, arguments.updates, json.loads(arguments.settings))
        rows.append({"log": log.name} | row | {"seconds": round(time.process_time() - start, 1)})
        print(json.dumps(rows[-1]), flush=True)
    report(rows)


if __name__ == "__main__":
    main()
