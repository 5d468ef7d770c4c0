"""Checked numbers: the first equation that computes NaN or infinity is found, wherever it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from jax import lax

import stratagem
from stratagem.errors import InputError
from stratagem.program.assertions import check_numbers


@pytest.fixture(autouse=True)
def checked() -> Iterator[None]:
    check_numbers(True)
    yield
    check_numbers(False)


def in_a_loop(x: Any) -> Any:
    return lax.while_loop(lambda state: state[0] < 9, lambda state: (state[0] + 1, jnp.log(state[1]) * x), (0, x))[1]


def in_a_scan(x: Any) -> Any:
    return lax.scan(lambda carry, row: (carry / row, row), x, jnp.asarray([1.0, 0.0, 2.0]))[0]


def in_a_branch(x: Any) -> Any:
    return lax.cond(x > 1, lambda: jnp.sqrt(-x), lambda: x)


def in_a_jit(x: Any) -> Any:
    return jax.jit(lambda y: jnp.exp(100 * y) - 1)(x)


def in_a_gradient(x: Any) -> Any:
    return jax.grad(lambda y: jnp.sqrt(y - 2))(x)


def hidden(x: Any) -> Any:
    return jnp.where(x < 0, x / 0.0, 1.0)


@pytest.mark.parametrize(
    ("function", "named", "line"),
    [
        (in_a_loop, "log", 28),
        (in_a_scan, "div", 32),
        (in_a_branch, "sqrt", 36),
        (in_a_jit, "exp", 40),
        (in_a_gradient, "div", 44),
        (hidden, "div", 48),
        (lambda x: x * jnp.nan, "mul", 0),
        (lambda x: jnp.where(x > 0, jnp.nan, x), "select_n", 0),
        (lambda x: (x - jnp.inf) + jnp.inf, "add", 0),
    ],
)
def test_the_first_is_found(function: Callable[[Any], Any], named: str, line: int) -> None:
    with pytest.raises(InputError, match=rf"^`{named}` computed NaN or infinity in float32\[\]") as raised:
        stratagem.function(function)(jnp.asarray(2.0))
    assert f"at test_checked_numbers.py:{line or ''}" in str(raised.value)


def test_results_are_the_same_and_infinity_that_is_meant_passes() -> None:
    def masked(x: Any) -> Any:
        scores = jnp.where(jnp.arange(4) < 2, x, -jnp.inf)
        return jax.nn.softmax(scores), jnp.max(scores), jnp.var(x), lax.fori_loop(0, 3, lambda _, y: y * 2, x)

    compiled = stratagem.function(masked)
    x = jnp.asarray([1.0, 2.0, 3.0, 4.0])
    check_numbers(False)
    expected = masked(x)
    check_numbers(True)
    for result, wanted in zip(compiled(x), expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-6)
    with pytest.raises(InputError, match="NaN is among the arrays or variables that a step was given"):
        compiled(jnp.asarray(np.array([1.0, 2.0, 3.0, np.nan], "float32")))


def test_programs_are_compiled_anew_when_checks_begin_and_end() -> None:
    compiled = stratagem.function(lambda x: jnp.log(x) * jnp.ones(0).sum())
    check_numbers(False)
    assert np.isnan(compiled(jnp.asarray(-1.0)))
    check_numbers(True)
    with pytest.raises(InputError, match="`log` computed"):
        compiled(jnp.asarray(-1.0))
    check_numbers(False)
    assert np.isnan(compiled(jnp.asarray(-1.0)))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [stratagem.MirroredStrategy, stratagem.CentralStorageStrategy])
def test_fit_on_two_replicas_with_uneven_batches_names_the_layer(kind: Any) -> None:
    x, y = np.random.default_rng(0).random((9, 3), "float32"), np.arange(9) % 2
    with kind(["cpu:0", "cpu:1"]).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)])
        model.add(keras.layers.Dense(2, activation="softmax", name="classes"))
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    losses = model.fit(x, y, batch_size=4, verbose=0).history["loss"]  # the last batch is one row, on one replica
    assert np.isfinite(losses).all()
    model.layers[-1].kernel.assign(np.full((3, 2), 1e38, "float32"))
    model.layers[-1].bias.assign(np.full(2, 3.4e38, "float32"))
    with pytest.raises(InputError, match=r"computed NaN or infinity in .* on replica [01] of 2, in .*classes"):
        model.fit(x * 100, y, batch_size=4, verbose=0)


def test_what_comes_from_another_replica_is_told_where_it_began() -> None:
    strategy = stratagem.MirroredStrategy(["cpu:0", "cpu:1"])

    def step(x: Any) -> Any:
        y = 1.0 / x
        return stratagem.get_replica_context().all_reduce("SUM", y) * 2.0

    rows = strategy.experimental_distribute_values_from_function(
        lambda context: jnp.asarray(float(1 - context.replica_id_in_sync_group))
    )
    with pytest.raises(InputError, match=r"`div` computed NaN or infinity in float32\[\] on replica 1 of 2"):
        strategy.run(step, args=(rows,))
