"""The permutation function: each position once, no structure that a uniform shuffle lacks, and one order for ever."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np
import pytest

from stratagem.data.permutation import ROUNDS, Permutation

LONG = 2**20 + 1
"""The shortest length that a shuffle uses it for."""

SAMPLE = 200_000
"""Positions that a statistic is made of."""

Order = Callable[[np.ndarray], np.ndarray]


def permutation(length: int, *seed: int) -> Permutation:
    return Permutation(length, np.random.Philox(np.random.SeedSequence(seed)).random_raw(ROUNDS))


def uniform(length: int, *seed: int) -> Order:
    """What the bounds are right for: NumPy's own shuffle, or independent draws where that takes too much memory."""
    rng = np.random.default_rng(seed)
    return (rng.permutation(length) if length < 10**7 else rng.integers(length, size=length // 100)).__getitem__


LENGTHS = [
    *range(1, 258),  # every residue of every small number
    *(2**power + off for power in range(9, 18) for off in (-1, 0, 1)),
    *(509, 1009, 4093, 10007, 65521, 99991),  # primes
    *(x * x + off for x in (31, 32, 100, 255) for off in (-1, 1)),  # the halves are just full, or just too small
]


def test_every_position_exactly_once() -> None:
    for length in LENGTHS:
        image = permutation(length, length)(np.arange(length))
        assert np.array_equal(np.bincount(image, minlength=length), np.ones(length)), length


@pytest.mark.parametrize("length", [LONG, 10**9, 2**40 + 7, 2**62])
def test_long_orders_stay_inside_and_meet_nowhere(length: int) -> None:
    places = np.append(np.arange(50_000) * (length // 50_000), length - 1)
    image = permutation(length, 1)(places)
    assert image.dtype == np.int64
    assert (image.min() >= 0, image.max() < length, len(np.unique(image))) == (True, True, len(places))


def test_positions_are_looked_up_alone_as_together() -> None:
    order = permutation(10**9, 5)
    places = np.array([0, 10**9 - 1, 12345, 500_000_000])
    assert order(places).tolist() == [int(order(places[k : k + 1])[0]) for k in range(4)]


def in_plain_python(place: int, length: int, keys: list[int]) -> int:
    """The network of the docstring, with Python's integers."""
    wrap = 2**64 - 1
    low_size = -(-length // (high_size := math.isqrt(length - 1) + 1))
    sizes = [high_size, low_size]

    def mixed(value: int) -> int:
        value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & wrap
        return ((value ^ value >> 27) * 0x94D049BB133111EB & wrap) >> 32

    while True:
        halves = list(divmod(place, low_size))
        for turn, key in enumerate(keys):
            moved = turn % 2
            step = mixed((halves[1 - moved] + key) & wrap) * sizes[moved] >> 32
            halves[moved] = (halves[moved] + step) % sizes[moved]
        place = halves[0] * low_size + halves[1]
        if place < length:
            return place


@pytest.mark.parametrize("length", [1, 2, 5, 7, 997, LONG, 10**9, 2**62])
def test_is_the_network_step_by_step(length: int) -> None:
    keys = np.random.Philox(length).random_raw(ROUNDS)
    places = np.unique([0, length // 3, length // 2, length - 1])
    expected = [in_plain_python(place, length, keys.tolist()) for place in places.tolist()]
    assert Permutation(length, keys)(places).tolist() == expected


def chi_square(left: np.ndarray, right: np.ndarray, length: int, cells: int) -> float:
    """Return by how many standard deviations pairs are unevenly spread over cells * cells."""
    counts = np.bincount(left * cells // length * cells + right * cells // length, minlength=cells**2)
    expected = len(left) / cells**2
    freedom = cells**2 - 1
    return float(((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)


both = pytest.mark.parametrize("make", [permutation, uniform])
"""The bound holds for a uniform shuffle as well, in the same test."""


@pytest.mark.thorough
@both
@pytest.mark.parametrize("length", [LONG, 1_500_007, 10**9])
def test_elements_that_follow_each_other_are_independent(make: Callable[..., Order], length: int) -> None:
    half = math.isqrt(length - 1) + 1  # positions that share a half of the network
    for lag in (1, 2, 1024, half):
        for seed in range(3):
            order = make(length, seed)
            image = order(np.arange(SAMPLE + half))
            left, right = image[:SAMPLE], image[lag : SAMPLE + lag]
            assert abs(chi_square(left, right, length, 32)) < 4.5, (lag, seed)
            serial = np.corrcoef(left, right)[0, 1] * math.sqrt(SAMPLE)
            assert abs(serial) < 4.5, (lag, seed)


@both
def test_neighbours_do_not_stay_neighbours(make: Callable[..., Order]) -> None:
    """A pair of neighbours stays within 2 in about 4 of `length` cases: 40 over ten orders, with deviation 6.3."""
    close = 0
    for seed in range(10):
        image = make(LONG, seed)(np.arange(LONG))
        close += int((np.abs(np.diff(image)) <= 2).sum())
    assert abs(close - 40) < 4.5 * math.sqrt(40)


def test_over_seeds_two_positions_go_anywhere() -> None:
    """Not only within one order: the seeds put the first two elements, and two far apart, into all cells alike."""
    places = np.array([0, 1, LONG // 2])
    images = np.array([permutation(LONG, seed, 7)(places) for seed in range(4000)])
    for second in (1, 2):
        assert abs(chi_square(images[:, 0], images[:, second], LONG, 8)) < 4.5


def test_seeds_give_orders_of_their_own() -> None:
    places = np.arange(1000)
    orders = [permutation(LONG, seed)(places) for seed in range(4)]
    agree = [int((a == b).sum()) for k, a in enumerate(orders) for b in orders[:k]]
    assert sum(agree) <= 1
    assert np.array_equal(permutation(LONG, 3)(places), orders[3])


@pytest.mark.parametrize(
    ("length", "digest"),
    [
        (LONG, "677c63eafb002c8d"),
        (1_281_167, "2a6bf32ce6177ead"),
        (10**9, "a912e4829691eb83"),
        (2**40 + 7, "553a4e0be3438d5a"),
    ],
)
def test_the_order_that_stored_states_rely_on(length: int, digest: str) -> None:
    """A run stores seeds and a position, not the order. Were these numbers to change, every run that resumes over a
    long dataset would see some examples twice and others never: a digest that differs is a fault of the code.
    """
    image = permutation(length, 42)(np.arange(10_000)).astype("<i8")
    assert hashlib.sha256(image.tobytes()).hexdigest()[:16] == digest
