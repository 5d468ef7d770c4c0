"""Traces run with rows of tables in the place of the tables."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stratagem.program.rules.row_lookups import Lookups, TableRows, Unknown, looked_up

TABLE = jnp.arange(20.0).reshape(10, 2)
INSIDE = np.array([1, 4, 7, 10, 10], np.int32)
"""The ids of a block; its last rows stand for all others."""
IDS = jnp.array([4, 1, 4])


def lookups() -> Lookups:
    rows = jnp.concatenate([TABLE[INSIDE[:3]], jnp.zeros((2, 2))])
    return Lookups({0: (TABLE.shape, INSIDE, rows)})


def evaluated(function: Any, *args: Any) -> tuple[Lookups, list[Any]]:
    """Run the trace of a function of (table, *args) with a block in the place of the table."""
    run = lookups()
    return run, run.evaluate(jax.make_jaxpr(function)(TABLE, *args), [run.blocks[0], *args])


def whole(result: TableRows) -> np.ndarray:
    """Return the array that a block stands for."""
    array = np.broadcast_to(np.asarray(result.rows[-1]), result.shape).copy()
    array[INSIDE[:3]] = result.rows[:3]
    return array


@pytest.mark.parametrize("ids", [IDS, jnp.array([-6, 7]), jnp.array([[1], [4]])])
def test_rows_that_are_looked_up(ids: Any) -> None:
    run, [found] = evaluated(lambda table, ids: table[ids], ids)
    np.testing.assert_array_equal(found, TABLE[ids])
    np.testing.assert_array_equal(jnp.ravel(run.looked_up[0][0]), jnp.ravel(ids) % 10)


def loss(table: Any, ids: Any) -> Any:
    return (jax.jit(lambda table: table[ids])(table) ** 2).sum()


def clipped(table: Any, ids: Any) -> Any:
    gradient = jax.grad(loss)(table, ids)
    return gradient / jnp.maximum(1.0, jnp.sqrt((gradient**2).sum()))


@pytest.mark.parametrize("function", [jax.grad(loss), clipped, lambda t, i: (2 * jax.grad(loss)(t, i) + 1).sum()])
def test_gradients_and_what_is_done_to_them(function: Any) -> None:
    _, [found] = evaluated(function, IDS)
    expected = function(TABLE, IDS)
    np.testing.assert_allclose(whole(found) if isinstance(found, TableRows) else found, expected, rtol=1e-6)


def test_other_rows_are_known_of_a_gradient_and_not_of_the_table() -> None:
    _, [doubled, gradient] = evaluated(lambda table, ids: (2 * table, 2 * jax.grad(loss)(table, ids)), IDS)
    assert (doubled.others_known, gradient.others_known) == (False, True)
    np.testing.assert_array_equal(doubled.rows[:3], 2 * TABLE[INSIDE[:3]])


@pytest.mark.parametrize(
    ("function", "how"),
    [
        (lambda table, ids: table.T @ table, "transpose"),
        (lambda table, ids: table.sum(), "reduce_sum"),
        (lambda table, ids: table + jnp.arange(10.0)[:, None], "add"),
    ],
)
def test_what_takes_the_whole_table_is_unknown(function: Any, how: str) -> None:
    _, [found] = evaluated(function, IDS)
    assert isinstance(found, Unknown)
    assert found.table == 0
    assert found.how in (how, "dot_general")


def test_which_inputs_are_looked_up() -> None:
    def function(ids: Any, first: Any, second: Any) -> Any:
        return jax.jit(lambda table: table.astype("bfloat16")[ids])(first), second.sum()

    assert looked_up(jax.make_jaxpr(function)(IDS, TABLE, TABLE)) == {1}
