"""One update of an algorithm's networks: loss, gradients and metrics of a batch, by Torch's operations or as one graph.

A GPU launches the kernels of an update all together, once they were recorded.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from offline_core.errors import ConfigError, LearningError
from offline_core.learning.algorithms.algorithm import Algorithm, LossOutput
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.steps import Batch
from offline_core.runtime.torch_settings import traced
from offline_core.runtime.user_code import user_errors

EXTREMES = ("_min", "_max")
"""Suffixes of metrics that are not averaged: the smallest and the largest of all steps."""
MOST_GRAPHS = 16
"""Graphs that one training may need: of updates in which other networks learn, say."""
MOST_OPERATIONS = 2_000
"""Most operations of a graph. A recurrent network has some for each step of a sequence."""
PLAIN = (bool, int, float, str)
"""Types of attributes that a graph may depend on."""
WORTH_COMPILING_UPDATES = 10_000
"""Updates from which `compute.compile: auto` compiles: it takes up to a minute, and saves 0.5 ms an update at least."""
WORTH_COMPILING_UPDATES_ON_GPU = 100_000
"""As `WORTH_COMPILING_UPDATES` on a GPU, where kernels are recorded in any case and 0.1 to 0.3 ms are saved."""
CALLS_BEFORE = 3
"""So often a function runs as it is: what is made once, as an optimiser's state, is there then. In the last of these calls
nothing may look at a number that the GPU computes, or the function is never recorded.
"""

log = logging.getLogger(__name__)


class BatchOutput(NamedTuple):
    """What an update learns of a batch besides its gradients; no tensor has gradients."""

    names: tuple[str, ...]
    """Names of the metrics that are averaged: `loss` first."""
    means: Tensor
    """(names,), their sums by the weights of the steps."""
    extreme_names: tuple[str, ...]
    """Names of the metrics that are not averaged."""
    extremes: Tensor
    """(extreme_names,), the largest of the steps with a weight; of `_min` the largest negative, which is the smallest's."""
    errors: Tensor | None
    """(B,), see `LossOutput`."""

    @property
    def named_means(self) -> dict[str, Tensor]:
        """Each mean (), by its name."""
        return dict(zip(self.names, self.means.unbind(), strict=True))


class Update:
    """Loss, gradients and metrics of batches, by Torch's operations.

    Arguments:
        nest: makes the nested columns that a loss takes of flat ones.
        autocast: compute the loss in bfloat16 where Torch's autocast does.
    """

    def __init__(self, networks: Networks, nest: Callable[[Batch], Batch], *, autocast: bool = False) -> None:
        self.networks = networks
        self.nest = nest
        self.autocast = autocast
        self.parameters = [parameter for parameter in networks.parameters() if parameter.requires_grad]
        kinds = [cast(dict[str, Tensor], kind) for part in networks.modules() for kind in (part._parameters, part._buffers)]
        self._places = [(kind, name) for kind in kinds for name, tensor in kind.items() if tensor is not None]
        """Where the modules hold parameters and buffers."""

    @property
    def tensors(self) -> list[Tensor]:
        """All parameters and buffers; a tied one twice."""
        return [kind[name] for kind, name in self._places]

    @property
    def attributes(self) -> tuple[Hashable, ...]:
        """What an update does depends on them, besides the numbers in tensors: plain ones of the networks, and what learns."""
        plain = [(name, value) for name, value in vars(self.networks).items() if type(value) in PLAIN and name != "updates"]
        return *plain, *[parameter.requires_grad for parameter in self.parameters]

    def __call__(self, batch: Batch, weights: Tensor, means_by: Tensor) -> BatchOutput:
        """Set the gradients of the weighted loss; a parameter that the loss does not depend on has None.

        Arguments:
            batch: flat columns.
            weights, means_by: (B,), of each step in the loss and in the means of metrics.
        """
        for parameter in self.parameters:
            parameter.grad = None
        if is_own(algorithm := type(self.networks.algorithm)):
            output = self._loss(batch, weights)
        else:
            with user_errors(f"algorithm {algorithm.__name__}", f"in update {self.networks.updates + 1:,}", LearningError):
                output = _checked(self._loss(batch, weights), len(weights), algorithm)
        torch.dot(output.loss, weights).backward()
        return batch_output(output, means_by)

    def _loss(self, batch: Batch, weights: Tensor) -> LossOutput:
        with torch.autocast(weights.device.type, torch.bfloat16) if self.autocast else contextlib.nullcontext():
            output: LossOutput = self.networks(self.nest(batch))
        return output


def _checked(output: Any, rows: int, algorithm: type[Algorithm]) -> LossOutput:
    """What a user's loss returned.

    Raises:
        ConfigError: It is no `LossOutput` of one number a step.
    """
    if not isinstance(output, LossOutput):
        raise ConfigError(f"The loss of {algorithm.__name__} has to return a LossOutput, and not {type(output).__name__}.")
    for name, values in {"loss": output.loss, **output.metrics}.items():
        if tuple(values.shape) != (rows,):
            raise ConfigError(
                f"{name} of {algorithm.__name__} has to be one number a step, ({rows},), and is {tuple(values.shape)}: the "
                "learner takes the mean itself, over all learners and without padding."
            )
    return output


@torch.no_grad()
def batch_output(output: LossOutput, means_by: Tensor) -> BatchOutput:
    """Return the metrics of a batch, from those of its steps."""
    metrics = {"loss": output.loss.detach(), **output.metrics}
    extreme_names = tuple(name for name in metrics if name.endswith(EXTREMES))
    names = tuple(name for name in metrics if name not in extreme_names)
    means = torch.stack([metrics[name] for name in names]).float() @ means_by
    extremes = means.new_empty(0)
    if extreme_names:
        signed = [-metrics[name] if name.endswith("_min") else metrics[name] for name in extreme_names]
        extremes = torch.stack(signed).float().where(means_by > 0, -torch.inf).amax(dim=1)
    return BatchOutput(names, means, extreme_names, extremes, output.errors)


class CompiledUpdate(Update):
    """An update as one graph, which Torch's inductor compiles.

    The graph is what an update does with the first batch of its kind, recorded: loss, backward pass and metrics. So there is no
    Python between its operations. What a loss depends on besides tensors has to be a plain attribute of the networks (a bool, a
    number, a string): there is a graph for each value. Random draws are those of `Update`, but for dropout inside attention.
    A compiled graph is kept in a file by Torch, so the next run with the same shapes starts in seconds.

    Arguments:
        rows: of the batches to compile. Others, as the last one of an epoch, are updates as `Update` makes them.
        fall_back: update without a graph, and log why, where there is none.

    Raises:
        ConfigError: The loss looks at numbers in tensors, or at `updates`, or needs too many graphs; or no compiler is found.
    """

    def __init__(
        self,
        networks: Networks,
        nest: Callable[[Batch], Batch],
        *,
        rows: int,
        fall_back: bool = False,
        autocast: bool = False,
    ) -> None:
        super().__init__(networks, nest, autocast=autocast)
        self.rows = rows
        self.fall_back = fall_back
        self._graphs: dict[Hashable, _Graph] = {}

    def __call__(self, batch: Batch, weights: Tensor, means_by: Tensor) -> BatchOutput:
        if len(next(iter(batch.values()))) != self.rows:
            return super().__call__(batch, weights, means_by)
        inputs = [*self.tensors, *batch.values(), weights, means_by]
        key = *self.attributes, *[(name, column.shape, column.dtype) for name, column in batch.items()]
        graph = self._graphs.get(key)
        if graph is None:
            try:
                graph = self._graphs[key] = self._graph(tuple(batch), inputs)
            except ConfigError as error:
                if not self.fall_back:
                    raise
                log.warning("Updates are not compiled. %s", error)
                self.rows = -1
                return super().__call__(batch, weights, means_by)
        with torch.no_grad():
            means, extremes, errors, *gradients = graph.function(*inputs)
        for parameter in self.parameters:
            parameter.grad = None
        for number, gradient in zip(graph.learning, gradients, strict=True):
            self.parameters[number].grad = gradient
        return BatchOutput(graph.names, means, graph.extreme_names, extremes, errors)

    @contextlib.contextmanager
    def _swapped(self, tensors: Sequence[Tensor]) -> Iterator[None]:
        """Let the modules have other parameters and buffers inside the block."""
        own = self.tensors
        try:
            self._put(tensors)
            yield
        finally:
            self._put(own)

    def _put(self, tensors: Sequence[Tensor]) -> None:
        for (kind, name), tensor in zip(self._places, tensors, strict=True):
            kind[name] = tensor

    def _graph(self, columns: Sequence[str], inputs: list[Tensor]) -> _Graph:
        updates, self.networks.updates = self.networks.updates, cast(int, None)  # a loss that counts them is no graph
        try:
            if len(self._graphs) == MOST_GRAPHS:
                raise RuntimeError(f"its attributes have more than {MOST_GRAPHS} values")
            return self._recorded(columns, inputs)
        except Exception as error:
            why = str(error).strip().partition("\n")[0]
            raise ConfigError(
                f"compute.compile makes one graph of an update, and found none in {type(self.networks.algorithm).__name__} "
                f"with this network and these spaces ({why}): leave compute.compile out."
            ) from error
        finally:
            self.networks.updates = updates

    def _recorded(self, columns: Sequence[str], inputs: list[Tensor]) -> _Graph:
        from torch.fx.experimental.proxy_tensor import make_fx  # imports SymPy: a second

        outputs: list[BatchOutput] = []
        learning: list[int] = []
        numbers = {id(parameter): number for number, parameter in enumerate(self.parameters) if parameter.requires_grad}
        of_places = [numbers.get(id(tensor)) for tensor in self.tensors]

        def update(*inputs: Tensor) -> list[Tensor | None]:
            tensors, rest = list(inputs[: len(of_places)]), inputs[len(of_places) :]
            leaves: dict[int, Tensor] = {}
            for position, number in enumerate(of_places):
                if number is not None:
                    tensors[position] = leaves.setdefault(number, tensors[position].detach().requires_grad_())
            with self._swapped(tensors):
                output = self._loss(dict(zip(columns, rest, strict=False)), rest[-2])
                gradients = torch.autograd.grad(torch.dot(output.loss, rest[-2]), [*leaves.values()], allow_unused=True)
            learned = {number: gradient for number, gradient in zip(leaves, gradients, strict=True) if gradient is not None}
            learning[:] = learned
            outputs[:] = [batch_output(output, rest[-1])]
            return [outputs[0].means, outputs[0].extremes, outputs[0].errors, *learned.values()]

        with traced(), torch.enable_grad():
            graph = make_fx(update, tracing_mode="fake")(*inputs)
        if (operations := len(graph.graph.nodes)) > MOST_OPERATIONS:
            raise RuntimeError(f"its {operations:,} operations would take minutes to compile")
        on_gpu = inputs[-1].is_cuda
        patches = {"fallback_random": True, "cpp_wrapper": not on_gpu}
        compile = torch._inductor.standalone_compile  # unlike `torch._inductor.compile`, it keeps the result in a file
        logging.getLogger("torch._inductor.ir").setLevel(logging.ERROR)  # it warns of operations that it calls by another way
        with torch.no_grad():
            compiled = compile(graph, [*inputs], dynamic_shapes="from_example_inputs", options={"config_patches": patches})
        function = _laid_out(compiled, [self.parameters[number] for number in learning]) if on_gpu else compiled
        return _Graph(function, outputs[0].names, outputs[0].extreme_names, learning)


def _laid_out(function: Callable[..., Sequence[Any]], parameters: list[nn.Parameter]) -> Callable[..., Sequence[Any]]:
    """Return the function of a graph whose gradients lie in memory as the parameters do: Adam asks for that.

    For a GPU the compiler pads matrices whose rows are no multiple of 16 bytes, and a part of a padded product lies otherwise.
    """

    def call(*inputs: Tensor) -> Sequence[Any]:
        means, extremes, errors, *gradients = function(*inputs)
        for number, (gradient, parameter) in enumerate(zip(gradients, parameters, strict=True)):
            if gradient.stride() != parameter.stride():
                gradients[number] = torch.empty_like(parameter).copy_(gradient)
        return means, extremes, errors, *gradients

    return call


class _Graph(NamedTuple):
    function: Callable[..., Sequence[Any]]
    """Parameters and buffers, columns, weights, means_by → means, extremes, errors, gradients."""
    names: tuple[str, ...]
    extreme_names: tuple[str, ...]
    learning: list[int]
    """Numbers of the parameters that have a gradient."""


class Replayed:
    """A function of tensors on a GPU, whose kernels are recorded in its fourth call, and replayed from then on.

    Launching the 200 kernels of an update one by one takes several times as long as the GPU needs to run them. All that Python
    does in the function is done in the call that records it, and not again; so it has to do the same for the same arguments.
    What it returns is overwritten by the next call. Draws are from Torch's generator of the GPU, as it is at each call.

    Arguments:
        function: may change tensors.
        what: the subject of the sentence that says why the function is not recorded.

    Raises:
        ConfigError: The function does what cannot be recorded.
    """

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        self.function = function
        self.what = what
        self._calls = 0
        self._can_be_recorded = True
        self._inputs: list[Tensor] = []
        self._kept: list[Tensor] = []
        self._output: Any = None
        self._graph: torch.cuda.CUDAGraph | None = None

    @property
    def is_recorded(self) -> bool:
        return self._graph is not None

    def __call__(self, *inputs: Tensor, kept: Sequence[Tensor]) -> Any:
        """Return what the function returns.

        Arguments:
            inputs: arguments of the function, of the same shapes in each call.
            kept: other tensors that the function uses. If one is replaced, the function is recorded again.
        """
        self._calls += 1
        if self._calls < CALLS_BEFORE or not self._can_be_recorded:
            return self.function(*inputs)
        if self._calls == CALLS_BEFORE:
            return self._tried(inputs)
        if len(kept) != len(self._kept) or any(one is not other for one, other in zip(kept, self._kept, strict=True)):
            self._record(inputs, kept)
        assert self._graph is not None
        for own, other in zip(self._inputs, inputs, strict=True):
            own.copy_(other)
        self._graph.replay()
        return self._output

    def _tried(self, inputs: tuple[Tensor, ...]) -> Any:
        """Run the function; where it looks at a number, say that it is not recorded, and run it as it is."""
        try:
            with _no_looks():
                return self.function(*inputs)
        except RuntimeError as error:
            if "synchroniz" not in str(error):
                raise
            log.warning("%s looks at numbers that the GPU computes, so its kernels are launched one by one.", self.what)
            self._can_be_recorded = False
            return self.function(*inputs)

    def _record(self, inputs: tuple[Tensor, ...], kept: Sequence[Tensor]) -> None:
        self._inputs, self._kept = [tensor.clone() for tensor in inputs], [*kept]
        self._graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                self._output = self.function(*self._inputs)
        except RuntimeError as error:
            raise ConfigError(
                f"{self.what} cannot be recorded for the GPU ({str(error).strip()}): set compute.compile to false."
            ) from error


@contextlib.contextmanager
def _no_looks() -> Iterator[None]:
    """Let all that waits for the GPU raise a RuntimeError inside the block."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Torch warns that it does not know all that waits
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def is_compiled(
    setting: bool | Literal["auto"], updates: int, algorithm: type[Algorithm], *, learners: int = 1, on_gpu: bool = False
) -> bool:
    """Return what `compute.compile` means for a run: a function of its config and its data, so that every run of it agrees.

    `auto` compiles long runs of this project's own algorithms: one of a user may look at more than a graph records. Of several
    learners each has another share of each batch, and would need many graphs.
    """
    if setting != "auto":
        return setting
    worth = WORTH_COMPILING_UPDATES_ON_GPU if on_gpu else WORTH_COMPILING_UPDATES
    return learners == 1 and updates >= worth and is_own(algorithm)


def is_own(algorithm: type[Algorithm]) -> bool:
    """Return whether it is one of this project."""
    return algorithm.__module__.startswith("offline_core.")


def clip_gradients(parameters: list[nn.Parameter], most: float) -> Tensor:
    """Scale the gradients, in place, to a norm of `most` where it is larger, and return what it was.

    The bits are those of `torch.nn.utils.clip_grad_norm_`, which sorts the parameters by device and type each time.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, (most / (norm + 1e-6)).clamp(max=1.0))
    return norm


def sum_gradients(parameters: list[nn.Parameter], means: Tensor) -> Tensor:
    """Sum the gradients of all learners, in place, and return the sums of their means, in one exchange."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    sums = torch.cat([*(gradient.flatten() for gradient in gradients), means])
    torch.distributed.all_reduce(sums)
    *totals, means = sums.split([*(gradient.numel() for gradient in gradients), len(means)])
    shaped = [total.view_as(gradient) for total, gradient in zip(totals, gradients, strict=True)]
    torch._foreach_copy_(gradients, shaped)
    return means
