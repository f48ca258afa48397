"""The layers between an encoded observation and its features: convolutions and hidden layers, or a user module."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from offline_core.errors import ConfigError
from offline_core.policies.config import NetworkConfig
from offline_core.policies.convolutions import Convolutions
from offline_core.policies.encoder import Encoder, is_image, leaf_spaces
from offline_core.runtime.user_code import import_object

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "elu": nn.ELU,
    "linear": nn.Identity,
}


def make_layers(encoder: Encoder, network: NetworkConfig) -> tuple[nn.Module, int]:
    """A module from encoded observations, (B, size) or (B, frames, size), to (B, features), and the number of features.

    With `imitation_threshold`, features of the imitator follow those of the policy: of hidden layers of its own, over the same
    convolutions or user module, or the same features again with `share_layers`.

    Raises:
        ConfigError: the network does not fit the observations, or the user module cannot be used.
    """
    trunk, inputs = make_trunk(encoder, network)
    sizes = network.hidden_sizes if network.module is None else []
    features = sizes[-1] if sizes else inputs
    if network.imitation_threshold is not None:
        shared, own = (sizes, []) if network.share_layers else ([], sizes)
        fork = Fork(*(nn.Sequential(*_hidden_layers(inputs, own, network)) for _ in range(2)))
        return nn.Sequential(trunk, *_hidden_layers(inputs, shared, network), fork), 2 * features
    if network.module is not None:
        return trunk, inputs
    before = list(trunk) if isinstance(trunk, nn.Sequential) else [trunk]
    return nn.Sequential(*before, *_hidden_layers(inputs, sizes, network)), features


class Fork(nn.Module):
    """Features of two modules side by side: (B, features) → (B, those of the first, then those of the second)."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([self.first(features), self.second(features)], dim=1)


def _hidden_layers(inputs: int, sizes: list[int], network: NetworkConfig) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for size in sizes:
        linear = nn.Linear(inputs, size)
        nn.init.orthogonal_(linear.weight, gain=2**0.5)
        nn.init.zeros_(linear.bias)
        layers += [linear, ACTIVATIONS[network.activation](), *([nn.Dropout(network.dropout)] if network.dropout else [])]
        inputs = size
    return layers


def make_trunk(encoder: Encoder, network: NetworkConfig) -> tuple[nn.Module, int]:
    """What comes before the hidden layers: a module from (B, size) or (B, frames, size) to (B, features), and features.

    The user module, convolutions, or nothing but the frames side by side.

    Raises:
        ConfigError: as `make_layers`.
    """
    inputs = network.frames * encoder.size
    layers: list[nn.Module] = [nn.Flatten()] if network.frames > 1 else []
    if network.module is not None:
        module, features = _user_module(network.module, inputs, network)
        return (nn.Sequential(*layers, module) if layers else module), features
    if any(is_image(leaf, network.image_layout) for leaf in leaf_spaces(encoder.space)):
        convolutions = Convolutions(
            encoder.space,
            layers=network.convolutions,
            frames=network.frames,
            activation=ACTIVATIONS[network.activation],
            image_layout=network.image_layout,
            padding=network.convolution_padding,
        )
        return convolutions, convolutions.features
    if network.convolutions:
        raise ConfigError(f"The observations {encoder.space} have no image: set network.convolutions to None.")
    return nn.Sequential(*layers), inputs


def _user_module(path: str, inputs: int, network: NetworkConfig) -> tuple[nn.Module, int]:
    """`Class(inputs, network)` of `package.module:Class`, a torch module from (B, inputs) to (B, features), both float32.

    Raises:
        ConfigError: it cannot be imported, is not a torch module, fails, or gives outputs of another shape or type.
    """
    kind = import_object(path, "network's module")
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise ConfigError(f"The network's module {path!r} is not a subclass of torch.nn.Module.")
    try:
        module = kind(inputs, network).eval()
        with torch.no_grad():
            features = module(torch.zeros(2, inputs))
    except Exception as error:  # user code may raise anything
        raise ConfigError(f"The network's module {path!r} failed with {inputs} inputs: {error!r}") from error
    if not (isinstance(features, Tensor) and features.ndim == 2 and len(features) == 2 and features.dtype == torch.float32):
        made = f"{features.dtype} {tuple(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
        raise ConfigError(
            f"The network's module {path!r} made {made} of (2, {inputs}) inputs; it has to make float32 (2, features)."
        )
    return module.train(), features.shape[1]
