"""Parameters of a policy's network."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from offline_core.runtime.config import Config

Activation = Literal["tanh", "relu", "silu", "gelu", "elu", "linear"]
Size = Annotated[int, Field(ge=1, le=65_536)]
ImageLayout = Literal["auto", "channels_last", "channels_first"]
ConvolutionPadding = Literal["valid", "same"]


class TransformerLayers(Config):
    """Attention over the last steps of an episode, each of which is three tokens: return to go, observation, action."""

    layers: int = Field(3, ge=1, le=64, description="Layers of attention.")
    heads: int = Field(1, ge=1, le=64, description="Attention heads of each layer; they share its units.")
    units: Size = Field(128, description="Units of each token.")
    context_steps: int = Field(
        20, ge=1, le=1024, description="Steps that are seen at once: sequences of training, memory of play."
    )
    max_episode_steps: int = Field(
        1000,
        ge=1,
        le=1_000_000,
        description="Times in an episode that are told apart; all later ones count as the last.",
    )
    dropout: float = Field(
        0.1, ge=0, lt=1, description="Share of the transformer's activations that an update leaves out, at random."
    )

    @model_validator(mode="after")
    def _heads_share_the_units(self) -> TransformerLayers:
        if self.units % self.heads:
            raise ValueError(f"{self.heads} heads cannot share {self.units} units evenly: change heads or units")
        return self


class TransformerConfig(TransformerLayers):
    """The layers of a decision transformer, and the return that it plays for."""

    target_return: float = Field(description="Return that each episode is played for.")
    return_scale: float = Field(gt=0, description="What returns are divided by before they are tokens.")


class NetworkConfig(Config):
    """From an observation to features: convolutions for images, a multi-layer perceptron, a memory; then the action head."""

    hidden_sizes: list[Size] = Field([64, 64], description="Units of each hidden layer, first to last.", max_length=10)
    activation: Activation = Field("tanh", description="Non-linearity after each hidden layer and each convolution.")
    share_layers: bool = Field(
        False, description="Policy, value function and the imitator of bcq share all layers but the last."
    )
    normalize_observations: bool = Field(
        False, description="Subtract the mean and divide by the standard deviation of the observations seen in training."
    )
    frames: int = Field(1, ge=1, le=64, description="Observations that the network sees at once; the latest is the last.")
    convolutions: list[tuple[Size, Size, Size]] | None = Field(
        None,
        max_length=10,
        description="(channels, kernel, stride) of each layer over images; [] for none; None: chosen by the images' size.",
    )
    convolution_padding: ConvolutionPadding = Field(
        "valid",
        description="valid: convolutions see pixels alone, and each layer's output is smaller. same: zeros around its input "
        "give it an output of input / stride, rounded up, as RLlib's convolutions have.",
    )
    image_layout: ImageLayout = Field(
        "auto",
        description="Which axis of images (Boxes of three axes) is their channels. auto: the first if it is at most 4 and the "
        "others at least 16, else the last, also of (6, 84, 84); the log says so where that may be wrong.",
    )
    recurrent: Literal["lstm", "gru"] | None = Field(
        None,
        description="A memory after the hidden layers; bc and marwil train it on sequences. None: none.",
    )
    recurrent_units: Size = Field(64, description="Units of the memory, if there is one.")
    module: str | None = Field(
        None,
        pattern=r"^[\w.]+:\w+$",
        description="Your torch module in place of convolutions and hidden layers, as package.module:Class; it is made "
        "with (input_size, network) and turns (B, input_size) into (B, features).",
    )
    squash: bool = Field(
        False, description="Keep actions of bounded Box spaces within their bounds by tanh; otherwise they are clipped."
    )
    bounded_mean: bool = Field(
        False,
        description="Keep the mean of actions of bounded Box spaces within their bounds by tanh; samples are clipped.",
    )
    fixed_std: float | None = Field(
        None,
        ge=1e-3,
        le=7,
        description="Standard deviation of Box actions, in halves of their range, for a policy that is its mean and explores "
        "by noise around it. None: learned.",
    )
    imitation_threshold: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Discrete actions, and set by bcq: choose among actions whose probability in the data, as an imitator "
        "learns it, is at least this share of the likeliest one's. None: among all.",
    )
    dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the units of each hidden layer of the policy that an update leaves out, at random. Critics and "
        "the value function leave out none.",
    )

    orthogonal_weights: bool | None = Field(
        None,
        description="Hidden layers and convolutions of the policy begin with orthogonal weights and no biases, otherwise with "
        "those of torch.nn.Linear, as most reference code of learning from logs does. None: those of ppo alone are orthogonal.",
    )

    transformer: SkipJsonSchema[TransformerConfig | None] = Field(
        None,
        description="Set by dt: attention over the last steps, after the hidden layers. None: none.",
    )

    @model_validator(mode="after")
    def _one_kind_of_gaussian(self) -> NetworkConfig:
        if self.squash and (self.bounded_mean or self.fixed_std is not None):
            raise ValueError("bounded_mean and fixed_std are of clipped actions: leave them out, or set squash to false")
        return self

    @model_validator(mode="after")
    def _one_way_to_remember(self) -> NetworkConfig:
        if self.recurrent and self.frames > 1:
            raise ValueError("a recurrent network has a memory of its own: set frames to 1, or recurrent to None")
        if self.transformer and (self.recurrent or self.frames > 1):
            raise ValueError("a transformer sees the last steps by itself: set frames to 1 and recurrent to None")
        if self.recurrent and self.imitation_threshold is not None:
            raise ValueError("imitation_threshold is for networks without a memory: leave it out, or set recurrent to None")
        return self

    @property
    def user_code(self) -> dict[str, Any]:
        return {} if self.module is None else {self.module: None}

    @property
    def remembers(self) -> bool:
        """Whether its actions depend on earlier observations of the episode, too."""
        return self.frames > 1 or self.recurrent is not None or self.transformer is not None

    def head_inputs(self, features: int) -> int:
        """Inputs of the action head, after hidden layers with so many features."""
        if self.transformer is not None:
            return self.transformer.units
        return features if self.recurrent is None else self.recurrent_units
