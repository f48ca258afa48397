"""The single-file side of a cell: `python -m benchmarks.reference.single_file_side ORDER.json` prints the result as JSON.

Each algorithm is one function of plain Torch, as in CORL and CleanRL; offline_core is not imported. All steps are tensors in
memory, and the steps of a batch are drawn with replacement. Actions have the bounds -1 and 1.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.reference.playing import returns

GAMMA, TARGET_RATE = 0.99, 0.005
POLICY_INTERVAL, TARGET_NOISE, NOISE_LIMIT = 2, 0.2, 0.5
EXPECTILE, BETA, MAX_WEIGHT = 0.7, 3.0, 100.0
ACTION_SAMPLES = 10

Batch = dict[str, Tensor]
Learner = tuple[Callable[[Batch, int], None], Callable[[Tensor], Tensor]]
"""An update from a batch and its number, from 1; the greedy policy, (B, observation) → (B, action)."""


def bc(observations: int, actions: int, settings: dict[str, Any]) -> Learner:
    """Pomerleau 1989: the squared error of a bounded mean, of discrete actions the cross-entropy."""
    policy = mlp(observations, settings["hidden"], actions, *([] if settings["discrete"] else [nn.Tanh()]))
    optimizer = torch.optim.Adam(policy.parameters(), settings["rates"]["policy"])
    error = functional.cross_entropy if settings["discrete"] else functional.mse_loss

    def update(batch: Batch, number: int) -> None:
        step(optimizer, error(policy(batch["observations"]), batch["actions"]))

    return update, lambda seen: policy(seen).argmax(1) if settings["discrete"] else policy(seen)


def td3_bc(observations: int, actions: int, settings: dict[str, Any]) -> Learner:
    """Fujimoto & Gu 2021, arXiv 2106.06860."""
    policy, critics, optimizers = actor_critics(observations, actions, settings)
    target_policy, target_critics = target_of(policy), target_of(critics)

    def update(batch: Batch, number: int) -> None:
        with torch.no_grad():
            new_actions = noisy(target_policy(batch["new_observations"]))
            new_values = values(target_critics, batch["new_observations"], new_actions).amin(0)
            targets = batch["rewards"] + GAMMA * batch["goes_on"] * new_values
        critic_loss = (values(critics, batch["observations"], batch["actions"]) - targets).square().mean(1).sum()
        step(optimizers["critics"], critic_loss)
        if number % POLICY_INTERVAL:
            return
        chosen = policy(batch["observations"])
        q = values([critics[0]], batch["observations"], chosen)
        policy_loss = functional.mse_loss(chosen, batch["actions"]) - settings["alpha"] * q.mean() / q.detach().abs().mean()
        step(optimizers["policy"], policy_loss)
        follow(target_policy, policy)
        follow(target_critics, critics)

    return update, policy


def rebrac(observations: int, actions: int, settings: dict[str, Any]) -> Learner:
    """Tarasov et al. 2023, arXiv 2305.09836."""
    policy, critics, optimizers = actor_critics(observations, actions, settings, layer_norm=True)
    target_policy, target_critics = target_of(policy), target_of(critics)

    def update(batch: Batch, number: int) -> None:
        with torch.no_grad():
            new_actions = noisy(target_policy(batch["new_observations"]))
            new_values = values(target_critics, batch["new_observations"], new_actions).amin(0)
            distance = (new_actions - batch["recorded_new_actions"]).square().sum(1) * batch["has_new_action"]
            new_values -= settings["critic_penalty"] * distance
            targets = batch["rewards"] + GAMMA * batch["goes_on"] * new_values
        critic_loss = (values(critics, batch["observations"], batch["actions"]) - targets).square().mean(1).sum()
        step(optimizers["critics"], critic_loss)
        if number % POLICY_INTERVAL:
            return
        chosen = policy(batch["observations"])
        q = values(critics, batch["observations"], chosen).amin(0)
        distance = (chosen - batch["actions"]).square().sum(1)
        policy_loss = settings["policy_penalty"] * distance.mean() - q.mean() / q.detach().abs().mean()
        step(optimizers["policy"], policy_loss)
        follow(target_policy, policy)
        follow(target_critics, critics)

    return update, policy


def iql(observations: int, actions: int, settings: dict[str, Any]) -> Learner:
    """Kostrikov et al. 2021, arXiv 2110.06169: a Gaussian with a bounded mean, and a spread that does not see the state."""
    policy, critics, optimizers = actor_critics(observations, actions, settings)
    value = mlp(observations, settings["hidden"], 1)
    log_std = nn.Parameter(torch.zeros(actions))
    optimizers["policy"].add_param_group({"params": [log_std]})
    value_optimizer = torch.optim.Adam(value.parameters(), settings["rates"]["critics"])
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizers["policy"], settings["updates"])
    target_critics = target_of(critics)

    def update(batch: Batch, number: int) -> None:
        with torch.no_grad():
            q = values(target_critics, batch["observations"], batch["actions"]).amin(0)
            targets = batch["rewards"] + GAMMA * batch["goes_on"] * value(batch["new_observations"]).squeeze(1)
        advantages = q - value(batch["observations"]).squeeze(1)
        value_loss = ((EXPECTILE - (advantages < 0).float()).abs() * advantages.square()).mean()
        step(value_optimizer, value_loss)
        critic_loss = (values(critics, batch["observations"], batch["actions"]) - targets).square().mean(1).sum()
        step(optimizers["critics"], critic_loss)
        follow(target_critics, critics)
        weights = (BETA * advantages.detach()).exp().clamp(max=MAX_WEIGHT)
        density = torch.distributions.Normal(policy(batch["observations"]), log_std.clamp(-20.0, 2.0).exp())
        policy_loss = -(weights * density.log_prob(batch["actions"]).sum(1)).mean()
        step(optimizers["policy"], policy_loss)
        cosine.step()

    return update, policy


def cql(observations: int, actions: int, settings: dict[str, Any]) -> Learner:
    """Kumar et al. 2020, arXiv 2006.04779, on soft actor-critic: actions by importance, targets without the entropy."""
    _, critics, optimizers = actor_critics(observations, actions, settings)
    policy = mlp(observations, settings["hidden"], 2 * actions)
    optimizers["policy"] = torch.optim.Adam(policy.parameters(), settings["rates"]["policy"])
    log_temperature = nn.Parameter(torch.zeros(()))
    temperature_optimizer = torch.optim.Adam([log_temperature], settings["rates"]["critics"])
    target_critics = target_of(critics)

    def drawn(seen: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = policy(seen).chunk(2, 1)
        gaussian = torch.distributions.Normal(mean, log_std.clamp(-20.0, 2.0).exp())
        inside = gaussian.rsample()
        slopes = 2 * (np.log(2.0) - inside - functional.softplus(-2 * inside))
        return inside.tanh(), (gaussian.log_prob(inside) - slopes).sum(1)

    def update(batch: Batch, number: int) -> None:
        seen, new_seen = batch["observations"], batch["new_observations"]
        chosen, log_probs = drawn(seen)
        temperature_loss = -log_temperature * (log_probs.detach().mean() - actions)
        policy_loss = (log_temperature.exp().detach() * log_probs - values(critics, seen, chosen).amin(0)).mean()
        with torch.no_grad():
            targets = batch["rewards"] + GAMMA * batch["goes_on"] * values(target_critics, new_seen, drawn(new_seen)[0]).amin(0)
            repeated = seen.repeat(ACTION_SAMPLES, 1)
            uniform = 2 * torch.rand(len(repeated), actions) - 1
            current, current_log_probs = drawn(repeated)
            new, new_log_probs = drawn(new_seen.repeat(ACTION_SAMPLES, 1))
            densities = torch.cat([torch.full((len(uniform),), -actions * np.log(2.0)), current_log_probs, new_log_probs])
        sampled = values(critics, repeated.repeat(3, 1), torch.cat([uniform, current, new])) - densities
        integrals = sampled.view(2, 3 * ACTION_SAMPLES, len(seen)).logsumexp(1)
        q = values(critics, seen, batch["actions"])
        critic_loss = ((q - targets).square() + settings["alpha"] * (integrals - q)).mean(1).sum()
        step(temperature_optimizer, temperature_loss)
        step(optimizers["policy"], policy_loss)
        step(optimizers["critics"], critic_loss)
        follow(target_critics, critics)

    return update, lambda seen: policy(seen).chunk(2, 1)[0].tanh()


TRANSITION = ("observations", "actions", "rewards", "goes_on", "new_observations")
ALGORITHMS: dict[str, tuple[Callable[[int, int, dict[str, Any]], Learner], tuple[str, ...]]] = {
    "bc": (bc, TRANSITION[:2]),
    "td3_bc": (td3_bc, TRANSITION),
    "iql": (iql, TRANSITION),
    "rebrac": (rebrac, (*TRANSITION, "recorded_new_actions", "has_new_action")),
    "cql": (cql, TRANSITION),
}
"""By name, with the columns of its batches."""


def mlp(inputs: int, hidden: list[int], outputs: int, *last: nn.Module, layer_norm: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU(), *([nn.LayerNorm(width)] if layer_norm else [])]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs), *last)


def actor_critics(observations: int, actions: int, settings: dict[str, Any], *, layer_norm: bool = False) -> Any:
    """Return a bounded policy, two critics, and the optimizer of each."""
    policy = mlp(observations, settings["hidden"], actions, nn.Tanh())
    critics = nn.ModuleList(mlp(observations + actions, settings["hidden"], 1, layer_norm=layer_norm) for _ in range(2))
    networks = {"policy": policy, "critics": critics}
    return (
        policy,
        critics,
        {key: torch.optim.Adam(network.parameters(), settings["rates"][key]) for key, network in networks.items()},
    )


def values(critics: Iterable[nn.Module], observations: Tensor, actions: Tensor) -> Tensor:
    """Return the values (critics, B)."""
    inputs = torch.cat([observations, actions], 1)
    return torch.stack([critic(inputs).squeeze(1) for critic in critics])


def noisy(actions: Tensor) -> Tensor:
    return (actions + (TARGET_NOISE * torch.randn_like(actions)).clamp(-NOISE_LIMIT, NOISE_LIMIT)).clamp(-1, 1)


def target_of(network: nn.Module) -> Any:
    return copy.deepcopy(network).requires_grad_(False)


@torch.no_grad()
def follow(target: nn.Module, network: nn.Module) -> None:
    for slow, fast in zip(target.parameters(), network.parameters(), strict=True):
        slow.lerp_(fast, TARGET_RATE)


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def read(path: str, settings: dict[str, Any]) -> tuple[Batch, Callable[[np.ndarray], Tensor]]:
    """Return all steps of a Minari file, and what the policy sees of observations (B, …)."""
    names = ("observations", "actions", "rewards", "terminations")
    with h5py.File(path) as file:
        episodes = [{name: file[f"episode_{number}"][name][()] for name in names} for number in range(len(file))]
    sums = [episode["rewards"].sum() for episode in episodes]
    scale = 1000 / (max(sums) - min(sums)) if settings.get("scale_rewards") else 1.0
    seen = np.concatenate([episode["observations"][:-1] for episode in episodes])
    mean, deviation = (seen.mean(0), seen.std(0) + 1e-3) if settings.get("normalize") else (0.0, 1.0)

    def observed(observations: np.ndarray) -> Tensor:
        return torch.as_tensor((observations - mean) / deviation, dtype=torch.float32)

    actions = torch.from_numpy(np.concatenate([episode["actions"] for episode in episodes]))
    columns = {
        "observations": observed(seen),
        "new_observations": observed(np.concatenate([episode["observations"][1:] for episode in episodes])),
        "actions": actions.float() if actions.is_floating_point() else actions.long(),
        "rewards": torch.from_numpy(np.concatenate([episode["rewards"] for episode in episodes]) * scale).float(),
        "goes_on": 1 - torch.from_numpy(np.concatenate([episode["terminations"] for episode in episodes])).float(),
        "has_new_action": torch.ones(len(actions)),
    }
    columns["has_new_action"][np.cumsum([len(episode["rewards"]) for episode in episodes]) - 1] = 0
    return columns | {"recorded_new_actions": columns["actions"].roll(-1, 0)}, observed


def learn(order: dict[str, Any], steps: Batch) -> Callable[[Tensor], Tensor]:
    """Return the greedy policy after all updates."""
    make, names = ALGORITHMS[order["algorithm"]]
    actions = int(steps["actions"].max()) + 1 if order["discrete"] else steps["actions"].shape[1]
    settings = order["settings"] | {"discrete": order["discrete"], "updates": order["updates"]}
    update, policy = make(steps["observations"].shape[1], actions, settings)
    for number in range(1, settings["updates"] + 1):
        indices = torch.randint(len(steps["actions"]), (settings["batch"],))
        update({name: steps[name][indices] for name in names}, number)
    return policy


def main() -> None:
    order = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    torch.manual_seed(order["seed"])
    begin, cpu = time.perf_counter(), time.process_time()
    steps, observed = read(order["minari"], order["settings"])
    policy = learn(order, steps)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    with torch.no_grad():
        episode_returns = returns(
            order["environment"], lambda observations: policy(observed(observations)).numpy(), order["episodes"]
        )
    print(json.dumps({"returns": episode_returns, "seconds": seconds, "cpu_seconds": cpu, "updates": order["updates"]}))


if __name__ == "__main__":
    main()
