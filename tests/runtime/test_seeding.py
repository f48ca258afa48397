"""Streams of random numbers: one seed gives many, told apart by name, the same everywhere and always."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offline_core.runtime.seeding import derive_seed, nth_seed

names = st.lists(st.text(max_size=5) | st.integers(0, 2**40), max_size=3)


@given(st.integers(0, 2**70), names)
def test_a_seed_fits_everything_that_takes_seeds(seed: int, path: list[str | int]) -> None:
    derived = derive_seed(seed, *path)
    assert 0 <= derived < 2**31
    assert derived == derive_seed(seed, *path)


def test_published_seeds_stay_what_they_are() -> None:
    """Recorded runs name their seed; a later version has to find the same streams."""
    seeds = [derive_seed(0), derive_seed(0, "environment"), derive_seed(7, "recording", 3, 1)]
    assert seeds == [1484405855, 1650919450, 1381009766]


def test_names_order_and_seed_all_count() -> None:
    paths: list[tuple[str | int, ...]] = [
        (),
        ("actions",),
        ("environment",),
        ("actions", "environment"),
        ("environment", "actions"),
        ("actionsenvironment",),
        (0,),
        (0, 0),
        (0, 1),
        (1, 0),
        ("recording", 1, 2),
        ("recording", 2, 1),
        ("recording", 12),
    ]
    derived = [derive_seed(seed, *path) for seed in range(50) for path in paths]
    assert len(set(derived)) == len(derived)


def test_each_number_has_a_seed_of_its_own() -> None:
    """Of SplitMix64, whose first outputs for the seed 0 are published (Vigna's splitmix64.c), without the last bit."""
    first = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [nth_seed(0, number) for number in range(3)] == [each >> 1 for each in first]
    assert len({nth_seed(7, number) for number in range(10_000)}) == 10_000
