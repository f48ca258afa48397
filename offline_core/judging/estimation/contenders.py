"""The policies that are judged on a log, with their short names; what they do is loaded when it is needed."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from offline_core.data.datasets.dataset import Dataset, addressed, is_dataset, open_committed
from offline_core.data.datasets.manifest import Operation, Parent, digest
from offline_core.data.store.location import Location
from offline_core.errors import CheckpointError, ConfigError
from offline_core.learning.algorithms.registry import algorithms
from offline_core.learning.config import TrainingConfig
from offline_core.policies.export_config import EXPORT_FILE, ExportManifest
from offline_core.policies.kind import PolicyKind, kind_of
from offline_core.policies.lineage import Lineage, Node, lineage, recorders_in
from offline_core.policies.manifest import PolicyManifest, find_policy
from offline_core.runtime.units import cut_text
from offline_core.runtime.user_code import UserCode, code_digests

if TYPE_CHECKING:
    from offline_core.judging.estimation.target import TargetPolicy

DIGEST = re.compile(r"(^|/)[0-9a-f]{16}(/|$)")
"""A digest in a path: it names the folder of what a sweep trained, and says nothing to people."""
MOST = 100
"""Candidates of one decision: each has a column in memory and Q functions of its own."""
LONGEST_NAME = 60
FUNCTION = "function:"
BEHAVIOUR_OF = "behaviour:"
MOST_MISCALIBRATED = 0.1
"""Expected calibration error of a model of what acted, above which it is not believed."""


@dataclass(frozen=True, slots=True)
class BehaviourClone:
    """The policy that stands for the behaviour that recorded a dataset."""

    checkpoint: str
    error: float | None
    """Expected calibration error on episodes that it was not fitted to; None: the actions are no list."""
    steps: int
    """Steps of the episodes by which it was examined."""


@dataclass(frozen=True)
class Contender:
    """A policy that is judged on a log: a checkpoint, a rule, a function, an ONNX file, a column of that log, or what recorded
    another one."""

    uri: str
    """URI of the checkpoint or file; else the text that names the policy."""
    name: str
    fingerprint: str
    """A digest of the weights, the rule's text, the function's source, the file, the column with its log, or the dataset."""
    log: Dataset
    manifest: PolicyManifest | None = None
    """The manifest of a checkpoint, or of the policy that an ONNX file was exported from; None if it is not known."""
    noise: float | None = None
    """See `EstimateConfig.noise`."""
    code: UserCode | None = None
    """The code of a function."""
    recording: Dataset | None = None
    """The dataset whose behaviour it is."""
    clone: BehaviourClone | None = None
    """The clone of that behaviour, once it is fitted; see `with_clones`."""

    @property
    def kind(self) -> PolicyKind:
        return kind_of(self.uri)

    @functools.cached_property
    def policy(self) -> TargetPolicy:
        """The policy with its weights or code.

        Raises:
            CheckpointError: It is not what the manifest says, or was replaced meanwhile.
            ConfigError: It says nothing of this log's observations, or what is no action of this log.
        """
        if self.kind == "checkpoint":
            from offline_core.policies.checkpoint import load_policy  # here, for what is reused needs no Torch

            return load_policy(self.uri, self.manifest)
        if self.recording is not None:
            from offline_core.judging.estimation.behaviour import policy_for

            return policy_for(self.recording, self.clone.checkpoint if self.clone else None)
        from offline_core.judging.estimation.stated import stated

        return stated(self.uri, self.name, self.log, manifest=self.manifest, noise=self.noise, code=self.code)

    @property
    def parent(self) -> Parent:
        """The policy as an input of the estimate or decision."""
        if self.kind == "checkpoint" and self.manifest is not None:
            return self.manifest.parent_entry(self.uri)
        if self.recording is not None:
            return self.recording.parent_entry
        return Parent(kind="files", uri=self.uri, fingerprint=self.fingerprint)

    @functools.cached_property
    def lineage(self) -> Lineage | None:
        """What a checkpoint, or the clone of a dataset's behaviour, has learned from; None: that is not known."""
        if self.recording is None:
            return lineage(self.uri) if self.kind == "checkpoint" else None
        history = lineage(self.recording.location.uri, self.recording.manifest.version)
        clone, edges = Node("checkpoint", self.uri, None, "found"), [(parent + 1, child + 1) for parent, child in history.edges]
        return Lineage([clone, *history.nodes], [(1, 0), *edges], history.is_whole)

    @property
    def recorder(self) -> str | None:
        """The one policy that recorded all of its dataset, by lineage; None: several, or none that is still there."""
        if self.recording is None:
            return None
        history = lineage(self.recording.location.uri, self.recording.manifest.version)
        recorders = recorders_in(history) or []
        return recorders[0].uri if len(recorders) == 1 and recorders[0].state == "found" else None

    @property
    def reasons(self) -> list[str]:
        """Why it cannot be judged on any log."""
        if self.clone is None or self.clone.error is None or self.clone.error <= MOST_MISCALIBRATED:
            return []
        return [
            f"the clone that stands for it is calibrated to within {100 * self.clone.error:.0f} % only, on average over "
            f"{self.clone.steps:,} held-out steps (expected calibration error), and has to be to within "
            f"{100 * MOST_MISCALIBRATED:.0f} %: record more episodes of it, or name the checkpoint that recorded"
        ]


def contenders_of(policies: Sequence[str | UserCode], log: Dataset, *, noise: float | None = None) -> list[Contender]:
    """The policies that texts name: checkpoints, addresses, rules, functions, ONNX files, columns of the log, other datasets.

    Raises:
        CheckpointError: One cannot be read.
        ConfigError: There is none, there are too many, one is named twice, or one cannot be understood.
    """
    if not policies:
        raise ConfigError("There is no candidate: name one policy or more.")
    if len(policies) > MOST:
        raise ConfigError(
            f"{len(policies):,} candidates are more than the {MOST} that one log can choose among and one memory hold: rank "
            "them by something else first, such as the held-out loss of their trainings, and decide among the best."
        )
    contenders = [_known(policy, log, noise) for policy in policies]
    if len({contender.fingerprint for contender in contenders}) < len(contenders):
        raise ConfigError(f"A candidate, or a copy of it, is named twice among {', '.join(map(str, policies))}: leave one.")
    checkpoints = [contender for contender in contenders if contender.kind == "checkpoint"]
    trained = {contender.uri: contender.manifest for contender in checkpoints if contender.manifest is not None}
    readable = dict(zip(trained, readable_names(names_of([*trained]), [*trained.values()]), strict=True))
    short = {contender.uri: _shortened(contender.uri) for contender in contenders if contender.uri not in readable}
    named = readable | (short if len({*short.values()}) == len(short) else {uri: uri for uri in short})
    return [replace(contender, name=named[contender.uri]) for contender in contenders]


def model_named(policy: str | None, log: Dataset) -> Contender | None:
    """The checkpoint that is named as a model of what acted, to be asked for the probability of each action; None if none is.

    Raises:
        CheckpointError: It is no checkpoint.
    """
    return None if policy is None else contenders_of([find_policy(policy)[0]], log)[0]


def _known(policy: str | UserCode, log: Dataset, noise: float | None) -> Contender:
    text = policy.strip() if isinstance(policy, str) else f"{FUNCTION}{policy}"
    kind = kind_of(text)
    if kind == "checkpoint" and is_dataset(addressed(text)[0]):
        kind, text = "behaviour", f"{BEHAVIOUR_OF}{text}"
    body = text.partition(":")[2].strip()
    make_contender = functools.partial(Contender, name="", log=log, noise=noise)
    match kind:
        case "checkpoint":
            uri, manifest = find_policy(text)
            return make_contender(uri, fingerprint=manifest.fingerprint, manifest=manifest)
        case "function":
            code = _code(body) if isinstance(policy, str) else policy
            return make_contender(text, fingerprint=digest([kind, str(code), code.arguments, code_digests(code)]), code=code)
        case "onnx":
            return _exported(make_contender, text)
        case "behaviour" if body:
            return _behaviour(make_contender, body, log)
    if not body:
        raise ConfigError(
            f"{text!r} is empty: write {kind}:… with what it is, such as rule:case when obs[1] > 0 then 1 else 0 end."
        )
    return make_contender(text, fingerprint=digest([kind, body, *([log.manifest.fingerprint] if kind == "column" else [])]))


def _code(path: str) -> UserCode:
    try:
        return UserCode(path=path)
    except ValidationError as error:
        raise ConfigError(f"{FUNCTION}{path} names no function: write {FUNCTION}package.module:name.") from error


def _behaviour(make_contender: functools.partial[Contender], dataset: str, log: Dataset) -> Contender:
    recording = open_committed(dataset)
    uri, version = recording.location.uri, recording.manifest.version
    if recording.manifest.fingerprint == log.manifest.fingerprint:
        raise ConfigError(
            f"{dataset} is the log itself, and what recorded it is what candidates are held against as it is "
            "(against=behaviour). Name another dataset, whose behaviour is to be judged on this log."
        )
    return make_contender(f"{BEHAVIOUR_OF}{uri}@{version}", fingerprint=recording.manifest.fingerprint, recording=recording)


def _exported(make_contender: functools.partial[Contender], uri: str) -> Contender:
    """An ONNX file, with the manifest of its policy if the export that lies next to it wrote this very file."""
    location = Location.of(uri)
    if not location.is_file():
        raise CheckpointError(f"There is no file {location.uri}.")
    sha256, manifest = hashlib.sha256(location.read()).hexdigest(), None
    manifest_file = location.parent.child(EXPORT_FILE)
    if manifest_file.is_file():
        try:
            export = ExportManifest.model_validate_json(manifest_file.read())
        except ValidationError as error:
            raise CheckpointError(f"{manifest_file.uri} is no manifest of an export that can be read. Export again.") from error
        manifest = export.policy if sha256 in [model.sha256 for model in export.models.values()] else None
    return make_contender(location.uri, fingerprint=digest([sha256, manifest is not None]), manifest=manifest)


def _shortened(text: str) -> str:
    if kind_of(text) == "behaviour":
        return f"the behaviour of {'/'.join(text.removeprefix(BEHAVIOUR_OF).split('/')[-2:])}"
    if kind_of(text) == "onnx":
        return "/".join(text.split("/")[-2:])
    return cut_text(" ".join(text.split()), LONGEST_NAME)


def names_of(uris: Sequence[str]) -> list[str]:
    """Short names: the segments in which paths differ, or the last segment where they do not."""
    parts = [uri.rstrip("/").split("/") for uri in uris]
    if len(parts) < 2:
        return ["/".join(segments[-2:]) for segments in parts]
    shortest = min(map(len, parts))
    begin = next((i for i in range(shortest) if len({segments[i] for segments in parts}) > 1), shortest - 1)
    end = next((i for i in range(shortest - begin) if len({segments[-1 - i] for segments in parts}) > 1), 0)
    return ["/".join(segments[begin : len(segments) - end]) or segments[-1] for segments in parts]


def readable_names(names: Sequence[str], manifests: Sequence[PolicyManifest]) -> list[str]:
    """The parameters in which the trainings differ, in place of names with a digest; the names if they are not different."""
    if not any(map(DIGEST.search, names)):
        return [*names]
    trainings = [_parameters(manifest.operation) for manifest in manifests]
    paths = dict.fromkeys(path for parameters in trainings for path in parameters)
    values = {path: {repr(parameters[path]) for parameters in trainings if path in parameters} for path in paths}
    told = [", ".join(f"{path}={parameters[path]}" for path in parameters if len(values[path]) > 1) for parameters in trainings]
    return told if len({*told}) == len(told) and all(told) else [*names]


def _parameters(operation: Operation) -> dict[str, Any]:
    """The parameters by path, with the defaults that a training leaves out, but without those of other algorithms."""
    parameters = dict(_flat(operation.config))
    if operation.stage != "train":
        return parameters
    defaults = TrainingConfig()
    others = algorithms().keys() - {parameters.get("algorithm", defaults.algorithm)}
    return dict(_flat(defaults.model_dump(mode="json", exclude={*others}))) | parameters


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
