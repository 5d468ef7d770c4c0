"""Gradients outside compiled functions: the same operations again are compiled, and give the same numbers."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import stratagem
from stratagem.loop import replay
from stratagem.program.lru import LastUsed
from stratagem.program.rules import cpu


@pytest.fixture(autouse=True)
def forgets_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_programs", LastUsed(128))
    monkeypatch.setattr(replay, "_seen", LastUsed(128))


def gradient(weight: Any, x: Any, scale: float = 1.0) -> Any:
    with stratagem.GradientTape() as tape:
        hidden = keras.ops.relu(keras.ops.matmul(x, weight)) * scale
        loss = keras.ops.sum(keras.ops.softmax(hidden) * hidden)
    return tape.gradient(loss, weight)


def by_jax(weight: Any, x: Any, scale: float = 1.0) -> Any:
    def loss(weight: Any) -> Any:
        hidden = jax.nn.relu(x @ weight) * scale
        return jnp.sum(jax.nn.softmax(hidden) * hidden)

    return jax.grad(loss)(weight)


@pytest.mark.thorough
def test_from_the_second_time_on_it_is_compiled() -> None:
    rng = np.random.default_rng(0)
    weight, x = keras.Variable(rng.normal(size=(3, 4)).astype("float32")), None
    for step in range(4):
        x = jnp.asarray(rng.normal(size=(5, 3)), "float32")
        np.testing.assert_allclose(gradient(weight, x), by_jax(weight.value, x), rtol=1e-5)
        weight.assign_add(np.ones((3, 4), "float32"))
        assert len(replay._programs) == min(step, 1)
    for scale in (2.0, 3.0):  # a number of Python is an operand of the operation
        np.testing.assert_allclose(gradient(weight, x, scale), by_jax(weight.value, x, scale), rtol=1e-5)
    x = jnp.asarray(rng.normal(size=(7, 3)), "float32")
    np.testing.assert_allclose(gradient(weight, x), by_jax(weight.value, x), rtol=1e-5)
    assert len(replay._programs) == 1


def test_what_xla_is_slow_at_on_cpus_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = []

    def watched(compute: Any) -> Any:
        quick = cpu.suited_to_cpu(compute)

        def run(*args: Any) -> Any:
            programs.append(str(jax.make_jaxpr(quick)(*args)))
            return quick(*args)

        return run

    monkeypatch.setattr(replay, "suited_to_cpu", watched)
    images = keras.Variable(np.arange(216, dtype="float32").reshape(2, 6, 6, 3) % 7)
    want = jax.grad(lambda value: keras.ops.max_pool(value, 2, 2).sum())
    for _ in range(2):
        with stratagem.GradientTape() as tape:
            loss = keras.ops.sum(keras.ops.max_pool(keras.ops.convert_to_tensor(images), 2, 2))
        np.testing.assert_array_equal(tape.gradient(loss, images), want(images.value))
    [program] = programs
    assert "select_and_scatter" in str(jax.make_jaxpr(want)(images.value))
    assert "select_and_scatter" not in program


def test_a_program_keeps_no_array() -> None:
    weight = keras.Variable(np.ones((3, 4), "float32"))
    kept = []
    for _ in range(3):
        x = jnp.ones((5, 3))
        gradient(weight, x)
        kept.append(weakref.ref(x))
        del x
    gc.collect()
    assert len(replay._programs) == 1
    assert all(reference() is None for reference in kept)


def test_what_cannot_be_told_apart_is_never_compiled() -> None:
    """A rule that closes over an array: the next one may close over another."""

    def scaled(by: Any) -> Any:
        @jax.custom_jvp
        def function(x: Any) -> Any:
            return x * by

        @function.defjvp
        def rule(primals: Any, tangents: Any) -> Any:
            return primals[0] * by, tangents[0] * by * 10

        return function

    w = keras.Variable(2.0)
    found = []
    for by in (1.0, 2.0, 3.0):
        with stratagem.GradientTape() as tape:
            loss = scaled(jnp.asarray(by))(w.value)
        found.append(float(tape.gradient(loss, w)))
    assert found == [10.0, 20.0, 30.0]


def test_a_second_derivative_through_a_compiled_gradient() -> None:
    w = keras.Variable(3.0)
    for _ in range(3):
        with stratagem.GradientTape() as outer:
            with stratagem.GradientTape() as inner:
                loss = w * w * w
            slope = inner.gradient(loss, w)
        assert (float(slope), float(outer.gradient(slope, w))) == (27.0, 18.0)
    assert len(replay._programs) == 2


def test_a_zero_that_is_negative_stays_so() -> None:
    """Sources are changed by a zero that leaves every number as it is."""
    w = keras.Variable([-0.0, 0.0])
    for _ in range(3):
        with stratagem.GradientTape() as tape:
            loss = 1.0 / w
        np.testing.assert_array_equal(tape.gradient(loss, w), [-np.inf, -np.inf])
        assert np.asarray(loss).tolist() == [-np.inf, np.inf]
        with stratagem.GradientTape() as tape:
            loss = keras.ops.arctan2(w, -1.0 + 0.0 * w)
        np.testing.assert_allclose(np.asarray(loss), [-np.pi, np.pi])


@jax.custom_jvp
def thrice(x: Any) -> Any:
    return x * jnp.asarray(3, x.dtype)


@thrice.defjvp
def _slope_of_thrice(primals: Any, tangents: Any) -> Any:
    return thrice(*primals), tangents[0] * jnp.asarray(5, tangents[0].dtype)


def test_a_function_with_a_derivative_of_its_own_at_several_shapes_and_dtypes() -> None:
    """Its trace holds the shape and the dtype: what was compiled for one must not be taken for another."""
    for _ in range(3):
        for shape in ((), (2,), (2, 3)):
            for dtype in ("float32", "bfloat16"):
                x = jnp.ones(shape, dtype)
                with stratagem.GradientTape() as tape:
                    tape.watch(x)
                    y = thrice(x)
                gradient = tape.gradient(y, x)
                assert (gradient.shape, gradient.dtype.name) == (shape, dtype)
                assert float(jnp.sum(gradient)) == 5.0 * x.size


def test_what_has_no_derivative_leads_nowhere() -> None:
    """As in TensorFlow: the gradient of a floor is None, and of a sum with it the other part's."""
    x = jnp.asarray([1.5, -2.5])
    with stratagem.GradientTape(persistent=True) as tape:
        tape.watch(x)
        whole = jnp.floor(x)
        whole_and_more = jnp.sum(jnp.floor(x) * 2.0 + x * 3.0)
        place = x[jnp.argmax(x)]
    assert tape.gradient(whole, x) is None
    assert tape.gradient(whole_and_more, x).tolist() == [3.0, 3.0]
    assert tape.gradient(place, x).tolist() == [1.0, 0.0]
