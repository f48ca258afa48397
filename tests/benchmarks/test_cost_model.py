"""The cost model: what it was made from comes out again, and what it says of clusters is of the right kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.cost_model import (
    TERMS,
    Cluster,
    CostModel,
    Point,
    Setting,
    bootstrapped,
    bottleneck,
    fit,
    learning,
    loading,
    seconds_per_step,
    stages,
)

TRUE = CostModel(
    {
        "begin": 0.3,
        "end": 0.1,
        "ray": 3.0,
        "pool": 1.5,
        "group": 4.0,
        "process": 2.0,
        "read": 1e-6,
        "fetch": 3e-7,
        "feed": 5e-8,
        "order": 4e-8,
        "step": 8e-7,
        "update": 4e-4,
        "sync": 3e-4,
        "round": 5e-5,
    }
)


def settings() -> list[Setting]:
    sizes = [Setting(steps, 1 + 10**6 // steps, prelearners=count) for steps in (10**5, 10**6, 10**7) for count in (0, 1, 2, 4)]
    groups = [Setting(10**6, batch_size=size, learners=count) for size in (1024, 8192) for count in (0, 1, 2, 4)]
    return sizes + groups + [Setting(10**6, prelearners=1, learners=2), Setting(10**6, prelearners=1, streamed=True)]


def points(noise: float = 0.0) -> list[Point]:
    rng = np.random.default_rng(0)
    counts = [counts for setting in settings() for counts in (loading(setting), learning(setting))]
    counts += [{name: 1e6} for name in ("read", "feed", "order")]
    return [Point(str(number), TRUE.seconds(c) * float(rng.lognormal(0, noise)), c) for number, c in enumerate(counts)]


def test_the_fit_recovers_what_the_points_were_made_from() -> None:
    found = fit(points())
    assert found.coefficients.keys() == TRUE.coefficients.keys() == TERMS.keys()
    assert found.coefficients == pytest.approx(TRUE.coefficients, rel=1e-4)


def test_no_coefficient_is_below_zero() -> None:
    made = [Point("a", 1.0, {"x": 1.0}), Point("b", 0.5, {"x": 1.0, "y": 1.0})]
    assert all(value >= 0 for value in fit(made).coefficients.values())


def test_short_and_long_runs_have_the_same_say() -> None:
    made = [Point("short", 1.0, {"x": 1.0}), Point("long", 200.0, {"x": 100.0})]
    found = fit(made).coefficients["x"]
    assert 1 < found < 1.4  # by absolute errors it would be 2


def test_terms_that_no_run_tells_are_named() -> None:
    alone = [point for point in points() if not point.counts.get("sync")]
    assert fit(alone).untold == ["sync", "round"]
    assert fit(points()).untold == []


def test_bootstrapped_models_lie_around_the_truth_and_are_the_same_each_time() -> None:
    made = points(noise=0.1)
    models = bootstrapped(made, count=60)
    assert models == bootstrapped(made, count=60)
    low, high = np.quantile([model.coefficients["step"] for model in models], [0.01, 0.99])
    assert low < TRUE.coefficients["step"] < high < 2 * low


def test_learners_beyond_the_cores_take_turns() -> None:
    two, four = learning(Setting(10**6, learners=2)), learning(Setting(10**6, learners=4))
    assert four["step"] == two["step"]  # half as many each, half as fast
    assert four["update"] == 2 * two["update"]
    assert four["round"] == 2 * 3 * two["round"]
    assert "sync" in two and learning(Setting(10**6))["sync"] == 0


def test_reading_is_shared_up_to_the_cores_and_comes_later_in_streams() -> None:
    read = [loading(Setting(10**6, prelearners=count))["read"] for count in (0, 1, 2, 4)]
    assert read == [1e6, 1e6, 5e5, 5e5]
    assert "read" not in loading(Setting(10**6, prelearners=1, streamed=True))


def test_a_stream_takes_as_long_as_the_slowest_of_what_goes_on_or_all_work_over_the_cores() -> None:
    many = Setting(10**7, prelearners=1, streamed=True, cores=64)
    starting = TRUE.seconds({"pool": 1, "process": 1 / 64})
    assert TRUE.streaming(many) - starting == pytest.approx(max(TRUE.seconds(learning(many)), 1e7 * 1e-6, 1e7 * 3.5e-7))
    assert TRUE.streaming(replace(many, cores=1)) > TRUE.streaming(many) + 5


def test_what_clusters_gain_and_where_it_ends() -> None:
    wide = Cluster(1, network_bytes_per_second=1e18)
    rates = [1 / seconds_per_step(stages(TRUE, replace(wide, nodes=nodes))) for nodes in (1, 2, 10, 100, 1000)]
    assert rates[1] > rates[0]
    assert max(rates) <= 1 / (TRUE.coefficients["fetch"] + TRUE.coefficients["feed"]) * (1 + 1e-9)  # one process feeds them all
    assert bottleneck(stages(TRUE, replace(wide, nodes=10))) == "the process that feeds"


def test_a_faster_network_and_passing_on_never_hurt() -> None:
    for nodes in (1, 2, 10, 100):
        slow = seconds_per_step(stages(TRUE, Cluster(nodes, network_bytes_per_second=1e8)))
        fast = seconds_per_step(stages(TRUE, Cluster(nodes, network_bytes_per_second=1e10)))
        passed = seconds_per_step(stages(TRUE, Cluster(nodes, network_bytes_per_second=1e8, passes_on=True)))
        assert fast <= slow and passed <= slow
    assert bottleneck(stages(TRUE, Cluster(100, network_bytes_per_second=1e8))) == "network: out of the node that feeds"


def test_the_bottleneck_is_the_learner_if_its_parts_together_are_slowest() -> None:
    found = {"learners: a": 2.0, "learners: b": 3.0, "the process that feeds": 4.0}
    assert seconds_per_step(found) == 5.0
    assert bottleneck(found) == "learners: b"
    assert bottleneck(found | {"the process that feeds": 6.0}) == "the process that feeds"
