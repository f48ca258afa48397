"""Names of candidates of a sweep."""

from __future__ import annotations

from typing import Any

from offline_core.data.datasets.manifest import Operation
from offline_core.judging.estimation.contenders import readable_names
from offline_core.policies.config import NetworkConfig
from offline_core.policies.manifest import PolicyManifest

SWEPT = ["bc296a7ad82c3a2b/0/last", "8536c81eba20d8d3/0/last", "0011223344556677/1/last"]


def manifest(**config: Any) -> PolicyManifest:
    return PolicyManifest(
        network=NetworkConfig(),
        value_function=False,
        observation_space={},
        action_space={},
        operation=Operation(name="train", config={"optimizer": {"batch_size": 64}} | config),
        weights_file="w",
        weights_sha256="0" * 64,
    )


def test_policies_of_a_sweep_are_named_by_what_differs() -> None:
    """A parameter that one algorithm alone has tells them apart from nothing."""
    made = [
        manifest(algorithm="bc"),
        manifest(algorithm="marwil", marwil={"beta": 1.0, "gamma": 0.9}),
        manifest(algorithm="marwil", marwil={"beta": 3.0, "gamma": 0.9}),
    ]
    assert readable_names(SWEPT, made) == [
        "algorithm=bc",
        "algorithm=marwil, marwil.beta=1.0",
        "algorithm=marwil, marwil.beta=3.0",
    ]


def test_other_names_stay_and_so_do_those_of_equal_trainings() -> None:
    assert readable_names(["a", "b"], [manifest(algorithm="bc"), manifest(algorithm="marwil")]) == ["a", "b"]
    assert readable_names(SWEPT[:2], [manifest(algorithm="bc")] * 2) == SWEPT[:2]
    assert readable_names(SWEPT[:2], [manifest(algorithm="bc"), manifest()]) == SWEPT[:2]
