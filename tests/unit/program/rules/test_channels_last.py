"""Convolutions in other layouts: they have the same bits, and XLA gets them with channels last, also in loops."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from tests.unit.program.rules.convolving import (
    NCHW,
    NWC,
    conv,
    convolutions,
    numbers,
    transposed,
    with_gradients,
)

from stratagem.program.rules.cpu import suited_to_cpu

CASES = {
    "same size": ((2, 6, 7, 3), (3, 3, 3, 5), {}),
    "strides": ((2, 6, 7, 3), (3, 2, 3, 5), {"window_strides": (2, 3)}),
    "dilation": ((2, 8, 9, 3), (3, 2, 3, 5), {"rhs_dilation": (2, 3)}),
    "channels first": ((2, 3, 6, 7), (5, 3, 3, 3), {"dimension_numbers": NCHW}),
    "a mixture": ((6, 3, 7, 2), (5, 3, 2, 3), {"dimension_numbers": ("HCWN", "OHWI", "CNHW")}),
    "one direction": ((2, 9, 3), (4, 3, 5), {"dimension_numbers": NWC, "window_strides": (2,)}),
    "three directions": (
        *((2, 4, 5, 6, 3), (2, 3, 3, 3, 5)),
        {"dimension_numbers": ("NDHWC", "DHWIO", "NDHWC"), "window_strides": (1, 2, 1)},
    ),
}


@pytest.mark.parametrize(("images", "kernel", "how"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_results_and_gradients_have_the_same_bits(
    images: tuple[int, ...], kernel: tuple[int, ...], how: dict[str, Any], dtype: str
) -> None:
    function = with_gradients(functools.partial(conv, **how))
    x, w = numbers(*images, dtype=dtype), numbers(*kernel, dtype=dtype)
    for mine, want in zip(jax.jit(suited_to_cpu(function))(x, w), jax.jit(function)(x, w), strict=True):
        np.testing.assert_array_equal(np.asarray(mine, np.float32), np.asarray(want, np.float32))
    assert_channels_last(function, x, w)


def test_groups_that_are_left_to_xla_keep_their_number() -> None:
    x, w = numbers(1, 4, 4, 130, dtype="bfloat16"), numbers(3, 3, 2, 130, dtype="bfloat16")
    function = with_gradients(functools.partial(conv, feature_group_count=65))
    groups = [(each["feature_group_count"], each["batch_group_count"]) for each in convolutions(function, x, w)]
    assert sorted(groups) == [(1, 65), (65, 1), (65, 1)]
    for mine, want in zip(jax.jit(suited_to_cpu(function))(x, w), jax.jit(function)(x, w), strict=True):
        np.testing.assert_allclose(np.asarray(mine, np.float32), np.asarray(want, np.float32), rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("function", [conv, transposed])
def test_what_other_rules_make_has_channels_last_too(function: Any) -> None:
    assert_channels_last(with_gradients(function), numbers(2, 6, 7, 3), numbers(3, 3, 3, 5))


def test_in_a_loop_and_a_branch_xla_gets_nothing_that_it_would_have_to_move() -> None:
    def steps(x: jax.Array, w: jax.Array) -> jax.Array:
        def step(w: jax.Array, row: jax.Array) -> Any:
            gradient = jax.grad(lambda w: (conv(row, w) ** 2).sum())
            return w - 1e-4 * lax.cond(row.sum() > 0, gradient, lambda w: 2 * gradient(w), w), None

        return lax.scan(step, w, x)[0]

    x, w = numbers(3, 2, 6, 7, 3), numbers(3, 3, 3, 5)
    assert len(convolutions(steps, x, w)) == 4
    assert_channels_last(steps, x, w)
    np.testing.assert_allclose(jax.jit(suited_to_cpu(steps))(x, w), jax.jit(steps)(x, w), rtol=1e-5, atol=1e-6)


def assert_channels_last(function: Any, *args: jax.Array) -> None:
    found = convolutions(function, *args)
    assert found
    for each in found:
        images, kernel, result = each["dimension_numbers"]
        last = len(images) - 1
        assert images == result == (0, last, *range(1, last))
        assert kernel == (last, last - 1, *range(last - 1))


def test_a_replica_without_rows_has_gradients_of_zero() -> None:
    x, w = numbers(0, 6, 7, 3), numbers(3, 3, 3, 5)
    result, of_images, of_kernel = jax.jit(suited_to_cpu(with_gradients(conv)))(x, w)
    assert (result.shape, of_images.shape) == ((0, 6, 7, 5), (0, 6, 7, 3))
    np.testing.assert_array_equal(of_kernel, np.zeros((3, 3, 3, 5)))
