"""Inputs and targets in lists, nested, and sparse: what Keras takes, on several replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.experimental.sparse
import keras
import numpy as np
import pytest
import scipy.sparse

import stratagem

RANDOM = np.random.default_rng(3)
ROWS = 22
A = RANDOM.normal(size=(ROWS, 4)).astype("float32")
B = RANDOM.normal(size=(ROWS, 3)).astype("float32")
Y = [A.sum(1, keepdims=True), B[:, :2]]
SPARSE = (A * (RANDOM.random(A.shape) < 0.3)).astype("float32")


def two_headed() -> keras.Model:
    a, b = keras.Input((4,)), keras.Input((3,))
    joined = keras.layers.Concatenate()([a, b])
    hidden = keras.layers.Dense(5, activation="tanh")(joined)
    model = keras.Model([a, b], [keras.layers.Dense(1)(hidden), keras.layers.Dense(2)(hidden)])
    model.compile("sgd", loss=["mse", "mae"], loss_weights=[1.0, 0.5])
    return model


def nested() -> keras.Model:
    inputs = {"first": [keras.Input((4,)), (keras.Input((3,)),)]}
    joined = keras.layers.Concatenate()([inputs["first"][0], inputs["first"][1][0]])
    model = keras.Model(inputs, {"out": [keras.layers.Dense(1)(joined)]})
    model.compile("sgd", loss="mse")
    return model


def one_headed() -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    return model


def batches_of(sparse: Callable[[np.ndarray], Any]) -> Iterator[Any]:
    for start in range(0, ROWS, 5):
        yield sparse(SPARSE[start : start + 5]), Y[0][start : start + 5]


CASES: dict[str, tuple[Callable[[], keras.Model], Callable[[], tuple[Any, Any]]]] = {
    "lists": (two_headed, lambda: ([A, B], Y)),
    "nested": (nested, lambda: ({"first": [A, (B,)]}, {"out": [Y[0]]})),
    "sparse of SciPy": (one_headed, lambda: (scipy.sparse.coo_matrix(SPARSE), Y[0])),
    "sparse of JAX": (one_headed, lambda: (jax.experimental.sparse.BCOO.fromdense(SPARSE), Y[0])),
    "generator of SciPy's": (one_headed, lambda: (batches_of(scipy.sparse.csr_matrix), None)),
    "generator of JAX's": (one_headed, lambda: (batches_of(jax.experimental.sparse.BCOO.fromdense), None)),
}


def trained(make: Callable[[], keras.Model], data: tuple[Any, Any]) -> list[np.ndarray]:
    keras.utils.set_random_seed(1)
    model = make()
    size = None if data[1] is None else 5  # a generator yields batches
    steps = 5 if data[1] is None else None
    model.fit(*data, batch_size=size, steps_per_epoch=steps, epochs=1, shuffle=False, verbose=0)
    return model.get_weights()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", CASES)
def test_weights_are_those_of_plain_keras(case: str) -> None:
    make, data = CASES[case]
    x, y = data()
    if "sparse" in case:  # dense is the same to a Dense layer, and shuffles of plain Keras do not take BCOO
        x = SPARSE
    elif "generator" in case:
        x = batches_of(lambda array: array)
    plain = trained(make, (x, y))
    with stratagem.MirroredStrategy(jax.devices()[:3]).scope():
        ours = trained(make, data())
    for weight, expected in zip(ours, plain, strict=True):
        np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=1e-6)


def test_targets_keep_their_list() -> None:
    seen: list[str] = []

    class Model(keras.Model):
        def compute_loss(self, x: Any = None, y: Any = None, *rest: Any, **more: Any) -> Any:
            seen.append(f"{type(x).__name__} {type(y).__name__}")
            return super().compute_loss(x, y, *rest, **more)

    with stratagem.MirroredStrategy(jax.devices()[:2]).scope():
        functional = two_headed()
        model = Model(functional.inputs, functional.outputs)
        model.compile("sgd", loss=["mse", "mae"])
    model.fit([A, B], Y, batch_size=8, epochs=1, verbose=0)
    assert set(seen) == {"list list"}
