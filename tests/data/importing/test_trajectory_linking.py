"""Linking rows by their observations, and opening the cycles that come of observations which occur several times."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from offline_core.data.importing.linking import Chains, chain, cycles, numbered, open_cycles, row_bytes


def chained(obs: str, new_obs: str, done: str = "", group: str = "") -> Chains:
    """Rows whose observations are letters; `done` is a string with an x where a row ends its episode."""
    states, next_states = (np.array([ord(letter) for letter in text], np.int64) for text in (obs, new_obs))
    ends = np.array([letter == "x" for letter in done.ljust(len(obs))], bool)
    groups = np.array([ord(letter) for letter in group or "a" * len(obs)], np.int64)
    return chain(states, next_states, ends, groups)


def as_lists(chains: Chains) -> list[list[int]]:
    found: list[list[int]] = []
    for row, start in zip(chains.order.tolist(), chains.starts.tolist(), strict=True):
        if start:
            found.append([])
        found[-1].append(row)
    return found


def test_rows_in_order_stay_so() -> None:
    chains = chained("abcpq", "bcdqr", "  x x")
    assert as_lists(chains) == [[0, 1, 2], [3, 4]]
    assert chains.ambiguous == 0


def test_rows_out_of_order_are_linked() -> None:
    chains = chained("cqabp", "drbcq", "xx   ")
    assert as_lists(chains) == [[2, 3, 0], [4, 1]], "chains by the place of their first row"
    assert chains.ambiguous == 0


def test_a_missing_row_leaves_two_chains() -> None:
    assert as_lists(chained("dabe", "ebcf", "   x")) == [[0, 3], [1, 2]]


def test_links_that_could_have_been_others_are_counted() -> None:
    """Two episodes pass through m, so either could have gone on as the other did."""
    assert chained("amcm", "m1m2", " x x").ambiguous == 0, "the next row fits"
    crossing = chained("mmap", "12mm", "xx  ")
    assert crossing.ambiguous == 2
    assert as_lists(crossing) == [[2, 0], [3, 1]], "matched in the order they lie in"


def test_a_cycle_is_cut_where_it_begins_in_the_file() -> None:
    assert as_lists(chained("bca", "cab")) == [[0, 1, 2]]
    assert as_lists(chained("cab", "abc")) == [[0, 1, 2]]
    assert as_lists(chained("bac", "cba")) == [[0, 2, 1]]


def test_a_cycle_that_touches_nothing_stays_by_itself() -> None:
    assert as_lists(chained("apqb", "bqpc", "   x")) == [[0, 3], [1, 2]]


def test_no_rows_and_one_row() -> None:
    assert as_lists(chained("", "")) == []
    assert as_lists(chained("a", "a")) == [[0]]


@given(st.data())
def test_shuffled_walks_are_whole_again(data: st.DataObject) -> None:
    """Whatever states an episode passes how often: all its rows, one after the other, from an end to nowhere."""
    walks = data.draw(st.lists(st.text("abcd", min_size=1, max_size=12), min_size=1, max_size=4))
    rows = [
        (group, now, then, i == len(walk) - 1)
        for group, walk in enumerate(walks)
        for i, (now, then) in enumerate(zip(walk, [*walk[1:], "z"], strict=True))
    ]
    rows = data.draw(st.permutations(rows))
    group, obs, new_obs = (np.array([ord(str(row[i])) for row in rows]) for i in range(3))
    done = np.array([row[3] for row in rows])
    chains = chain(obs, new_obs, done, group)
    assert sorted(chains.order.tolist()) == list(range(len(rows)))
    inside = ~chains.starts[1:]
    before, after = chains.order[:-1][inside], chains.order[1:][inside]
    np.testing.assert_array_equal(new_obs[before], obs[after])
    np.testing.assert_array_equal(group[before], group[after])
    assert not done[before].any()
    assert chains.starts.sum() == len(walks), "one chain an episode"
    without_ids = chain(obs, new_obs, done, np.zeros(len(rows), int))
    assert without_ids.starts.sum() == len(walks), "and as many where nobody says which is which"


@given(
    st.integers(1, 30).flatmap(
        lambda n: st.tuples(st.permutations(range(n)), st.lists(st.integers(0, 3), min_size=n, max_size=n))
    )
)
def test_opened_cycles_keep_every_row_and_use_only_places_that_fit(case: tuple[list[int], list[int]]) -> None:
    """Any permutation is cycles; places are drawn, so that a row leads to where its successor starts."""
    successor, place = np.array(case[0]), np.array(case[1])
    to = place[successor]
    assert (cycles(successor) >= 0).all()
    open_cycles(successor, place)
    assert (cycles(successor) < 0).all()
    linked = np.flatnonzero(successor >= 0)
    np.testing.assert_array_equal(place[successor[linked]], to[linked])
    assert len(np.unique(successor[linked])) == len(linked), "nobody has two predecessors"
    # A cut for each set of cycles that hang together, by a search of the graph of places.
    joined = {p: {p} for p in place.tolist()}
    for one, other in zip(place.tolist(), to.tolist(), strict=True):
        merged = joined[one] | joined[other]
        joined |= dict.fromkeys(merged, merged)
    assert len(successor) - len(linked) == len({frozenset(group) for group in joined.values()})


def test_equal_numbers_are_equal_bytes() -> None:
    rows = row_bytes({"a": np.array([0.0, -0.0, 1.0]), "b": (np.array([[1, 2]] * 3),)})
    assert (rows[0] == rows[1]).all()
    assert not (rows[0] == rows[2]).all()
    assert rows.shape == (3, 24)


def test_equal_rows_share_a_number() -> None:
    rows = np.random.default_rng(0).integers(0, 256, (50_000, 7), np.uint8)
    rows[40_000:] = rows[:10_000]
    expected = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    pairs = set(zip(numbered(rows).tolist(), expected.tolist(), strict=True))
    assert len(pairs) == expected.max() + 1, "one number for one content"
