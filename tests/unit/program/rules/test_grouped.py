"""Grouped convolutions: the numbers of XLA's, and its gradients, from few convolutions of several groups."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from tests.unit.program.rules.convolving import NCHW, assert_same_numbers, conv, convolutions, numbers, with_gradients

CASES = {
    "two channels a group": ((2, 6, 7, 8), (3, 3, 2, 12), {"feature_group_count": 4}),
    "groups of their own": ((2, 5, 5, 130), (3, 3, 65, 4), {"feature_group_count": 2}),
    "some groups together": ((2, 5, 5, 96), (3, 3, 24, 8), {"feature_group_count": 4}),
    "strides": ((2, 7, 8, 6), (3, 3, 3, 4), {"feature_group_count": 2, "window_strides": (2, 2)}),
    "dilated": ((2, 7, 8, 6), (3, 3, 3, 4), {"feature_group_count": 2, "rhs_dilation": (2, 1)}),
    "channels first": ((2, 6, 7, 8), (4, 3, 3, 3), {"feature_group_count": 2, "dimension_numbers": NCHW}),
}


@pytest.mark.parametrize(("images", "kernel", "how"), CASES.values(), ids=CASES)
def test_result_and_gradients_are_the_same(
    images: tuple[int, ...], kernel: tuple[int, ...], how: dict[str, Any]
) -> None:
    assert_same_numbers(functools.partial(conv, **how), numbers(*images), numbers(*kernel))


@pytest.mark.parametrize(
    ("images", "kernel", "groups", "together"),
    [((2, 6, 7, 8), (3, 3, 2, 12), 4, 1), ((2, 5, 5, 96), (3, 3, 24, 8), 4, 2), ((2, 5, 5, 130), (3, 3, 65, 4), 2, 2)],
    ids=["all together", "two by two", "each alone"],
)
def test_groups_are_taken_together_up_to_64_channels(
    images: tuple[int, ...], kernel: tuple[int, ...], groups: int, together: int
) -> None:
    function = functools.partial(conv, feature_group_count=groups)
    left = convolutions(function, numbers(*images), numbers(*kernel))
    assert [each["feature_group_count"] for each in left] == [1] * together
    left = convolutions(with_gradients(function), numbers(*images), numbers(*kernel))
    assert {each["feature_group_count"] * each["batch_group_count"] for each in left} == {1}


def test_short_floats_and_many_wide_groups_are_left_to_xla() -> None:
    function = functools.partial(conv, feature_group_count=2)
    x, w = numbers(2, 5, 5, 4, dtype="bfloat16"), numbers(3, 3, 2, 4, dtype="bfloat16")
    assert [each["feature_group_count"] for each in convolutions(function, x, w)] == [2]
    function = functools.partial(conv, feature_group_count=65)
    left = convolutions(function, numbers(1, 3, 3, 65 * 40), numbers(3, 3, 40, 65))
    assert [each["feature_group_count"] for each in left] == [65]
