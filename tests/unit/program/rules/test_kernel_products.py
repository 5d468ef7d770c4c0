"""Gradients of kernels as products: they have the numbers of XLA's, whatever the shapes, and each part is small."""

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
    transposed,
    with_gradients,
)

from stratagem.program.rules import kernel_gradients, kernel_products
from stratagem.program.rules.cpu import suited_to_cpu

NDHWC = ("NDHWC", "DHWIO", "NDHWC")

CASES = {
    "rows": ((8, 6, 5, 3), (3, 3, 3, 4), {}, 60, [(4, 2)]),
    "all rows": ((8, 6, 5, 3), (3, 3, 3, 4), {}, 1000, [(1, 8)]),
    "rows, and some left over": ((7, 6, 5, 3), (3, 3, 3, 4), {}, 60, [(3, 2), (1, 1)]),
    "lines": ((3, 6, 5, 3), (3, 3, 3, 4), {}, 10, [(9, 2)]),
    "one line": ((3, 6, 5, 3), (3, 3, 3, 4), {}, 1, [(18, 1)]),
    "lines, and some left over": ((2, 7, 5, 3), (3, 3, 3, 4), {}, 10, [(6, 2), (2, 1)]),
    "parts of one size": ((1, 9, 5, 3), (3, 3, 3, 4), {}, 20, [(3, 3)]),
    "lines, unpadded": ((3, 8, 5, 3), (3, 2, 3, 4), {"padding": "VALID"}, 8, [(9, 2)]),
    "lines, strides": ((3, 12, 9, 3), (3, 3, 3, 4), {"window_strides": (2, 2)}, 10, [(9, 2)]),
    "lines, other strides": ((3, 19, 9, 3), (4, 3, 3, 4), {"window_strides": (3, 1)}, 20, [(9, 2), (3, 1)]),
    "lines, dilation": ((3, 12, 9, 3), (3, 2, 3, 4), {"rhs_dilation": (2, 3)}, 40, [(9, 4)]),
    "lines, padded and cut": ((3, 12, 9, 3), (3, 3, 3, 4), {"padding": ((4, -2), (-1, 3))}, 30, [(12, 3)]),
    "rows, padded and cut": ((3, 12, 9, 3), (3, 3, 3, 4), {"padding": ((4, -2), (-1, 3))}, 200, [(3, 1)]),
    "rows, strides": ((8, 12, 9, 3), (3, 3, 3, 4), {"window_strides": (2, 2)}, 60, [(4, 2)]),
    "rows, dilation and padding": (
        *((8, 9, 9, 3), (3, 2, 3, 4), {"rhs_dilation": (2, 1), "padding": ((1, 2), (0, 3))}, 200, [(4, 2)]),
    ),
    "one column": ((8, 6, 5, 3), (5, 1, 3, 4), {}, 60, [(4, 2)]),
    "channels first": ((8, 3, 6, 5), (4, 3, 3, 3), {"dimension_numbers": NCHW}, 60, [(4, 2)]),
    "lines, channels first": ((3, 3, 6, 5), (4, 3, 3, 3), {"dimension_numbers": NCHW}, 10, [(9, 2)]),
    "three directions": (
        *(
            (3, 5, 4, 3, 2),
            (3, 2, 3, 2, 4),
            {"dimension_numbers": NDHWC, "window_strides": (1, 1, 1)},
            24,
            [(6, 2), (3, 1)],
        ),
    ),
}
"""Images, kernel, how they are convolved, places of the images in a product, and the number and size of the parts."""


@pytest.fixture(autouse=True)
def any_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_gradients, "FIRST_SLOW_JAX", (0,))
    monkeypatch.setattr(kernel_products, "_LEAST_CHANNELS", 1)
    monkeypatch.setattr(kernel_products, "_LEAST_BYTES", 1)
    monkeypatch.setattr(kernel_products, "_PART_BYTES", 1)


def parts(program: Any) -> list[tuple[int, int]]:
    """Return the length of each loop over products, and how many rows or lines are in one of them."""
    found = []
    for eqn in program.jaxpr.eqns:
        if eqn.primitive.name == "scan":
            rows, lines = eqn.params["jaxpr"].jaxpr.outvars[1].aval.shape[:2]
            found.append((eqn.params["length"], lines if rows == 1 and lines < 5 else rows))
    return found


@pytest.mark.parametrize(("images", "kernel", "how", "positions", "wanted"), CASES.values(), ids=CASES)
def test_result_and_gradients_are_the_same(
    images: tuple[int, ...],
    kernel: tuple[int, ...],
    how: dict[str, Any],
    positions: int,
    wanted: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel_products, "_LEAST_POSITIONS", positions)
    function, x, w = functools.partial(conv, **how), numbers(*images), numbers(*kernel)
    assert_same_numbers(function, x, w)
    source = jax.eval_shape(function, x, w)

    def gradient(x: jax.Array, w: jax.Array) -> Any:
        return jax.vjp(functools.partial(function, x), w)[1](jnp.ones(source.shape))

    assert parts(jax.make_jaxpr(suited_to_cpu(gradient))(x, w)) == wanted
    assert len(equations(gradient, x, w)) == 1  # what `vjp` computes first


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_kernels_of_transposed_convolutions_too(padding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_products, "_LEAST_POSITIONS", 40)
    function = functools.partial(transposed, padding=padding)
    x, w = numbers(8, 4, 5, 3), numbers(3, 3, 3, 4)
    assert_same_numbers(function, x, w)
    assert parts(jax.make_jaxpr(suited_to_cpu(with_gradients(function)))(x, w)) == [(4, 2)]


@pytest.mark.parametrize(
    ("images", "kernel", "how", "dtype"),
    [
        ((8, 6, 5, 3), (3, 3, 3, 4), {}, "bfloat16"),
        ((8, 6, 5, 4), (3, 3, 2, 4), {"feature_group_count": 2}, "float32"),
        ((8, 36, 12, 3), (17, 4, 3, 4), {}, "float32"),
        ((8, 12, 12, 3), (3, 5, 3, 4), {}, "float32"),
        ((8, 30, 3), (3, 3, 4), {"dimension_numbers": NWC, "window_strides": (1,)}, "float32"),
        ((0, 6, 5, 3), (3, 3, 3, 4), {}, "float32"),
    ],
    ids=["short floats", "groups", "a window of many places", "five columns", "one direction", "no rows"],
)
def test_other_gradients_stay_convolutions(
    images: tuple[int, ...], kernel: tuple[int, ...], how: dict[str, Any], dtype: str
) -> None:
    function = with_gradients(functools.partial(conv, **how))
    program = jax.make_jaxpr(suited_to_cpu(function))(numbers(*images, dtype=dtype), numbers(*kernel, dtype=dtype))
    assert "dot_general" not in str(program)


@pytest.mark.parametrize("name", ["_LEAST_CHANNELS", "_LEAST_BYTES"])
def test_those_of_few_channels_or_bytes_stay_convolutions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, x, w = with_gradients(conv), numbers(8, 6, 5, 3), numbers(3, 3, 3, 4)
    limit = {"_LEAST_CHANNELS": 3, "_LEAST_BYTES": 8 * 6 * 5 * 4 * 4}[name]
    for least, is_product in ((limit, True), (limit + 1, False)):
        monkeypatch.setattr(kernel_products, name, least)
        assert ("dot_general" in str(jax.make_jaxpr(suited_to_cpu(function))(x, w))) == is_product


def test_older_versions_of_jax_are_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_gradients, "FIRST_SLOW_JAX", (99,))
    program = jax.make_jaxpr(suited_to_cpu(with_gradients(conv)))(numbers(8, 6, 5, 3), numbers(3, 3, 3, 4))
    assert "dot_general" not in str(program)


@pytest.mark.parametrize(
    ("shape", "channels", "wanted"),
    [
        ((16, 64, 64, 32), 64, (1, 8)),
        ((16, 64, 64, 32), 32, (1, 16)),
        ((16, 8, 8, 256), 256, (2, 8)),
        ((16, 4, 4, 512), 512, (8, 4)),
        ((64, 11, 11, 64), 32, (4, 11)),
        ((8, 28, 28, 512), 512, (1, 4)),
        ((2, 500, 500, 64), 64, (1, 1)),
    ],
)
def test_a_product_takes_128_kb_of_images_or_128_places(
    shape: tuple[int, ...], channels: int, wanted: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_products, "_PART_BYTES", 1 << 17)
    assert kernel_products._sizes_of_part(shape, channels, 4) == wanted
