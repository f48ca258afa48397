"""Losses of d3rlpy on seeded networks and batches, which tests/learning/algorithms/test_against_d3rlpy.py compares with ours.

    python benchmarks/reference/d3rlpy_losses.py tests/data/d3rlpy

Runs in an environment of its own, with d3rlpy 2.8 and safetensors: d3rlpy pins another gymnasium. One file for each algorithm:
`batch.<column>`, `weights.<module>.<parameter>` by d3rlpy's names, `draws.<number>` in the order of drawing, `losses.<name>`,
`gradients.<module>` (their norms), `greedy` (the chosen actions, where the algorithm changes them). Nothing is updated between
two losses, so all of them are of the same weights.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import d3rlpy
import safetensors.torch
import torch
from d3rlpy import algos
from d3rlpy.models.encoders import VectorEncoderFactory
from d3rlpy.torch_utility import TorchMiniBatch

BATCH, OBSERVATION, ACTION, CHOICES = 64, 11, 3, 4
PLAIN = VectorEncoderFactory(hidden_units=[32, 16])
NORMED = VectorEncoderFactory(hidden_units=[32, 16], use_layer_norm=True)
ACTOR_CRITIC: dict[str, Any] = {"actor_encoder_factory": PLAIN, "critic_encoder_factory": PLAIN, "gamma": 0.9}
Q_LEARNING: dict[str, Any] = {"encoder_factory": PLAIN, "gamma": 0.9}
CONSERVATIVE: dict[str, Any] = {**ACTOR_CRITIC, "n_action_samples": 3, "initial_temperature": 0.6}
FIXED: dict[str, Any] = {**CONSERVATIVE, "conservative_weight": 5.0, "alpha_threshold": 0.0, "alpha_learning_rate": 0.0}

CONTINUOUS = {
    "iql": algos.IQLConfig(**ACTOR_CRITIC, value_encoder_factory=PLAIN, max_weight=5.0),
    "td3": algos.TD3Config(**ACTOR_CRITIC),
    "td3_bc": algos.TD3PlusBCConfig(**ACTOR_CRITIC),
    "rebrac": algos.ReBRACConfig(
        actor_encoder_factory=PLAIN, critic_encoder_factory=NORMED, gamma=0.9, actor_beta=0.05, critic_beta=0.5
    ),
    "awac": algos.AWACConfig(**ACTOR_CRITIC, lam=2.0),
    "sac": algos.SACConfig(**ACTOR_CRITIC, initial_temperature=0.6),
    "cql": algos.CQLConfig(**FIXED),
    "cql_lagrange": algos.CQLConfig(
        **CONSERVATIVE, conservative_weight=2.0, alpha_threshold=3.0, initial_alpha=1.5, soft_q_backup=True
    ),
    "cal_ql": algos.CalQLConfig(**FIXED),
}
DISCRETE = {
    "double_dqn": algos.DoubleDQNConfig(**Q_LEARNING),
    "discrete_cql": algos.DiscreteCQLConfig(**Q_LEARNING, alpha=0.7),
    "bcq": algos.DiscreteBCQConfig(**Q_LEARNING, share_encoder=False),
    "bcq_shared": algos.DiscreteBCQConfig(**Q_LEARNING),
}
CLONING = {"bc": algos.BCConfig(encoder_factory=PLAIN), "discrete_bc": algos.DiscreteBCConfig(encoder_factory=PLAIN)}

Tensors = dict[str, torch.Tensor]


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    version = {"made by": f"d3rlpy {d3rlpy.__version__}, torch {torch.__version__}"}
    for number, (name, config) in enumerate({**CONTINUOUS, **DISCRETE, **CLONING}.items()):
        torch.manual_seed(number)
        batch = made_batch(discrete=name in DISCRETE or name == "discrete_bc")
        algorithm = config.create()
        algorithm.create_impl((OBSERVATION,), CHOICES if name in DISCRETE or name == "discrete_bc" else ACTION)
        modules = modules_of(algorithm.impl)
        spread_weights(modules)
        with recorded_draws() as draws:
            outputs = (cloning if name in CLONING else q_learning if name in DISCRETE else actor_critic)(algorithm.impl, batch)
        tensors = {f"batch.{column.name}": getattr(batch, column.name) for column in dataclasses.fields(batch)[:8]}
        for module, part in modules.items():
            tensors |= {f"weights.{module}.{parameter}": tensor for parameter, tensor in part.state_dict().items()}
        tensors |= {f"draws.{number}": tensor for number, tensor in enumerate(draws)} | outputs
        tensors = {key: tensor.detach().clone().contiguous() for key, tensor in tensors.items()}
        safetensors.torch.save_file(tensors, folder / f"{name}.safetensors", metadata=version)
        (folder / f"{name}.safetensors").chmod(0o644)


def made_batch(*, discrete: bool) -> TorchMiniBatch:
    """Draw 64 steps; actions do not touch the bounds, for there densities differ."""
    actions = [
        torch.randint(CHOICES, (BATCH, 1)).float() if discrete else torch.empty(BATCH, ACTION).uniform_(-0.95, 0.95)
        for _ in range(2)
    ]
    return TorchMiniBatch(
        observations=torch.randn(BATCH, OBSERVATION),
        actions=actions[0],
        rewards=torch.randn(BATCH, 1),
        next_observations=torch.randn(BATCH, OBSERVATION),
        next_actions=actions[1],
        returns_to_go=torch.randn(BATCH, 1),
        terminals=(torch.rand(BATCH, 1) < 0.2).float(),
        intervals=torch.randint(1, 4, (BATCH, 1)).float(),
        device="cpu",
    )


def modules_of(impl: Any) -> dict[str, torch.nn.Module]:
    """Return the networks and parameters of an algorithm by d3rlpy's names."""
    parts = {field.name: getattr(impl._modules, field.name) for field in dataclasses.fields(impl._modules)}
    return {name: part for name, part in parts.items() if isinstance(part, torch.nn.Module)}


@torch.no_grad()
def spread_weights(modules: dict[str, torch.nn.Module]) -> None:
    """Spread values and actions, and move targets away from what they follow: nothing stays near zero, or equal."""
    for name, module in modules.items():
        for parameter in module.parameters():
            if name not in ("log_temp", "log_alpha"):
                parameter.mul_(2.0).add_(0.1 * torch.randn_like(parameter))


@contextlib.contextmanager
def recorded_draws() -> Iterator[list[torch.Tensor]]:
    """Record what is drawn: standard normals of distributions, `torch.randn`, uniforms."""
    draws: list[torch.Tensor] = []
    normal, randn, uniform = torch.distributions.normal._standard_normal, torch.randn, torch.Tensor.uniform_

    def recording(draw: Any) -> Any:
        def drawing(*args: Any, **kwargs: Any) -> torch.Tensor:
            draws.append(draw(*args, **kwargs))
            return draws[-1]

        return drawing

    torch.distributions.normal._standard_normal, torch.randn = recording(normal), recording(randn)
    torch.Tensor.uniform_ = recording(uniform)
    try:
        yield draws
    finally:
        torch.distributions.normal._standard_normal, torch.randn = normal, randn
        torch.Tensor.uniform_ = uniform


def actor_critic(impl: Any, batch: TorchMiniBatch) -> Tensors:
    """Return the losses of critics and actor, and the norms of their gradients."""
    modules = modules_of(impl)
    for name in ("temp_optim", "alpha_optim"):  # whose losses step at once
        if optimizer := getattr(impl._modules, name, None):
            optimizer.optim.param_groups[0]["lr"] = 0.0
    if isinstance(impl, algos.qlearning.torch.awac_impl.AWACImpl):
        impl._modules.log_temp._parameter.data.fill_(-torch.inf)  # without the bonus of entropy, which is a mistake there
    critic = impl.compute_critic_loss(batch, impl.compute_target(batch))
    critic.critic_loss.backward()
    gradients = {name: norm_of(modules[name]) for name in ("q_funcs", "value_func") if name in modules}
    actor = impl.compute_actor_loss(batch, impl._modules.policy(batch.observations))
    actor.actor_loss.backward()
    gradients["policy"] = norm_of(modules["policy"])
    return named(vars(critic) | vars(actor), gradients)


def q_learning(impl: Any, batch: TorchMiniBatch) -> Tensors:
    """Return the losses, the norms of their gradients, and the greedy actions."""
    loss = impl.compute_loss(batch, impl.compute_target(batch))
    loss.loss.backward()
    gradients = {name: norm_of(module) for name, module in modules_of(impl).items() if name != "targ_q_funcs"}
    return named(vars(loss), gradients) | {"greedy": impl.inner_predict_best_action(batch.observations)}


def cloning(impl: Any, batch: TorchMiniBatch) -> Tensors:
    """Return the losses and the norm of their gradient."""
    loss = impl.compute_loss(batch.observations, batch.actions)
    loss.loss.backward()
    return named(vars(loss), {"imitator": norm_of(impl._modules.imitator)})


def norm_of(module: torch.nn.Module) -> torch.Tensor:
    return torch.stack([parameter.grad.norm() for parameter in module.parameters()]).norm()


def named(losses: Tensors, gradients: Tensors) -> Tensors:
    return {f"losses.{name}": loss for name, loss in losses.items()} | {
        f"gradients.{name}": norm for name, norm in gradients.items()
    }


if __name__ == "__main__":
    main()
