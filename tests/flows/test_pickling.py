"""Flows travel: `flow.serve` sends a flow, and the flows that it calls, pickled to each run's process."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import pytest
from prefect import Flow, flow

from tests.deployments.flows import FLOWS


@pytest.mark.parametrize("ours", FLOWS, ids=lambda ours: ours.name)
def test_a_flow_validates_its_parameters_where_it_arrives(ours: Flow[..., Any]) -> None:
    """A pickled flow takes along what its code names and what its annotations are; annotations that are text name nothing."""

    @flow
    def users() -> Flow[..., Any]:
        return ours

    arrived = pickle.loads(cloudpickle.dumps(users)).fn()
    assert arrived is not ours, "by value, as in another process"
    assert arrived.validate_parameters({}) == ours.validate_parameters({})
