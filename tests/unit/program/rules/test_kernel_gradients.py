"""Gradients of kernels in parts: they have the numbers of XLA's, whatever the shapes, and each part is small."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from tests.unit.program.rules.convolving import (
    NCHW,
    NWC,
    assert_same_numbers,
    conv,
    equations,
    numbers,
    with_gradients,
)

from stratagem.program.rules import kernel_gradients
from stratagem.program.rules.cpu import suited_to_cpu

ROW = 6 * 5 * 4 * 4
"""Bytes of one row of results of 6x5 places with 4 channels."""

CASES = {
    "rows": ((8, 6, 5, 3), (3, 3, 3, 4), {}, 2 * ROW, 2),
    "rows, and some left over": ((7, 6, 5, 3), (3, 3, 3, 4), {}, 2 * ROW, 2),
    "an odd number of rows is rounded": ((9, 6, 5, 3), (3, 3, 3, 4), {}, 3 * ROW, 2),
    "at least two rows": ((8, 6, 5, 3), (3, 3, 3, 4), {}, ROW // 2, 2),
    "strips": ((3, 6, 5, 3), (3, 3, 3, 4), {}, ROW // 3, 1),
    "strips of one line": ((3, 6, 5, 3), (3, 3, 3, 4), {}, 1, 1),
    "strips, and some left over": ((2, 7, 5, 3), (3, 3, 3, 4), {}, ROW // 3, 1),
    "strips, unpadded": ((3, 8, 5, 3), (3, 2, 3, 4), {"padding": "VALID"}, ROW // 3, 1),
    "strips, strides": ((3, 12, 9, 3), (3, 3, 3, 4), {"window_strides": (2, 2)}, ROW // 3, 1),
    "strips, other strides": ((3, 19, 9, 3), (4, 3, 3, 4), {"window_strides": (3, 1)}, ROW // 2, 1),
    "strips, dilation": ((3, 12, 9, 3), (3, 2, 3, 4), {"rhs_dilation": (2, 3)}, ROW, 1),
    "strips, padded and cut": ((3, 12, 9, 3), (3, 3, 3, 4), {"padding": ((4, -2), (-1, 3))}, ROW // 2, 1),
    "rows, strides": ((8, 12, 9, 3), (3, 3, 3, 4), {"window_strides": (2, 2)}, 2 * ROW, 2),
    "rows, dilation and padding": (
        *((8, 9, 9, 3), (3, 2, 3, 4), {"rhs_dilation": (2, 1), "padding": ((1, 2), (0, 3))}, 4 * ROW, 2),
    ),
    "channels first": ((8, 3, 6, 5), (4, 3, 3, 3), {"dimension_numbers": NCHW}, 2 * ROW, 2),
    "strips, channels first": ((3, 3, 6, 5), (4, 3, 3, 3), {"dimension_numbers": NCHW}, ROW // 3, 1),
    "one direction": ((8, 30, 3), (5, 3, 4), {"dimension_numbers": NWC, "window_strides": (1,)}, 2 * ROW, 2),
    "one direction, strips": ((3, 30, 3), (5, 3, 4), {"dimension_numbers": NWC, "window_strides": (2,)}, ROW // 9, 1),
}
"""Images, kernel, how they are convolved, bytes of a part, and rows that each convolution sums over at most."""


@pytest.fixture(autouse=True)
def any_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_gradients, "FIRST_SLOW_JAX", (0,))


@pytest.mark.parametrize(("images", "kernel", "how", "nbytes", "most"), CASES.values(), ids=CASES)
def test_result_and_gradients_are_the_same(
    images: tuple[int, ...],
    kernel: tuple[int, ...],
    how: dict[str, Any],
    nbytes: int,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel_gradients, "_PART_BYTES", nbytes)
    function, x, w = functools.partial(conv, **how), numbers(*images), numbers(*kernel)
    assert_same_numbers(function, x, w)
    source = jax.eval_shape(function, x, w)

    def gradient(x: jax.Array, w: jax.Array) -> Any:
        return jax.vjp(functools.partial(function, x), w)[1](jnp.ones(source.shape))

    parts = equations(gradient, x, w)[1:]
    assert {eqn.invars[0].aval.shape[eqn.params["dimension_numbers"].lhs_spec[1]] for eqn in parts} <= {1, most}


@pytest.mark.parametrize("images", [(8, 6, 5, 3), (2, 6, 5, 3)], ids=["rows", "strips"])
def test_strips_and_rows_are_summed_in_loops(images: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_gradients, "_PART_BYTES", ROW if images[0] == 8 else ROW // 3)
    program = jax.make_jaxpr(suited_to_cpu(with_gradients(conv)))(numbers(*images), numbers(3, 3, 3, 4))
    [loop] = [eqn for eqn in program.eqns if eqn.primitive.name == "scan"]
    assert loop.params["length"] == {8: 4, 2: 6}[images[0]]


@pytest.mark.parametrize(
    ("images", "kernel", "how", "dtype"),
    [
        ((8, 6, 5, 3), (3, 3, 3, 4), {}, "bfloat16"),
        ((8, 6, 5, 4), (3, 3, 2, 4), {"feature_group_count": 2}, "float32"),
        ((8, 12, 12, 3), (9, 9, 3, 4), {}, "float32"),
        ((2, 6, 5, 3), (3, 3, 3, 4), {}, "float32"),
        ((0, 6, 5, 3), (3, 3, 3, 4), {}, "float32"),
    ],
    ids=["short floats", "groups", "a window of many places", "few bytes", "no rows"],
)
def test_other_gradients_are_not_divided(
    images: tuple[int, ...], kernel: tuple[int, ...], how: dict[str, Any], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_gradients, "_PART_BYTES", ROW)
    function = with_gradients(functools.partial(conv, **how))
    program = jax.make_jaxpr(suited_to_cpu(function))(numbers(*images, dtype=dtype), numbers(*kernel, dtype=dtype))
    assert "scan" not in str(program)


def test_older_versions_of_jax_are_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_gradients, "_PART_BYTES", 1)
    monkeypatch.setattr(kernel_gradients, "FIRST_SLOW_JAX", (99,))
    program = jax.make_jaxpr(suited_to_cpu(with_gradients(conv)))(numbers(8, 6, 5, 3), numbers(3, 3, 3, 4))
    assert "scan" not in str(program)
