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

    Raises:
        ConfigError: the network does not fit the observations, or the user module cannot be used.
    """
    inputs = network.frames * encoder.size
    layers: list[nn.Module] = [nn.Flatten()] if network.frames > 1 else []
    if network.module is not None:
        module, features = _user_module(network.module, inputs, network)
        return (nn.Sequential(*layers, module) if layers else module), features
    activation = ACTIVATIONS[network.activation]
    if any(is_image(leaf, network.image_layout) for leaf in leaf_spaces(encoder.space)):
        convolutions = Convolutions(
            encoder.space,
            layers=network.convolutions,
            frames=network.frames,
            activation=activation,
            image_layout=network.image_layout,
        )
        layers, inputs = [convolutions], convolutions.features
    elif network.convolutions:
        raise ConfigError(f"The observations {encoder.space} have no image: set network.convolutions to None.")
    for size in network.hidden_sizes:
        linear = nn.Linear(inputs, size)
        nn.init.orthogonal_(linear.weight, gain=2**0.5)
        nn.init.zeros_(linear.bias)
        layers += [linear, activation()]
        inputs = size
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
