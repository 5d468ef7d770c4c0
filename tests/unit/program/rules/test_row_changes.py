"""Programs that read and write only the rows that they look up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stratagem.program.remote_values import RowChange, RowsOf
from stratagem.program.rules.row_changes import RowProgram, block_size

TABLE = np.arange(400, dtype=np.float32).reshape(200, 2)
IDS = jnp.array([5, 3, 5])


class Residence:
    """Where the table lives; notes what is asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def read(self, variables: Sequence[Any]) -> list[Any]:
        self.asked += [each.ids.tolist() if isinstance(each, RowsOf) else "whole" for each in variables]
        return [TABLE[each.ids] if isinstance(each, RowsOf) else TABLE for each in variables]

    def write(self, changes: Sequence[tuple[Any, Any]]) -> None:
        raise AssertionError


class Table:
    """In the place of a remote variable."""

    shape = TABLE.shape
    _dtype = "float32"
    takes_rows = True

    def __init__(self, path: str = "table") -> None:
        self.residence = Residence()
        self.path = path


def loss(table: Any, ids: Any) -> Any:
    return (table[ids] ** 2).sum()


def step(values: Any, arrays: Any, numbers: Any) -> Any:
    """Return (the loss, the table after a step of gradient descent)."""
    value, gradient = jax.value_and_grad(loss)(values[0], arrays[0])
    return [value], [-numbers[0] * gradient]


def test_only_rows_travel() -> None:
    table = Table()
    program = RowProgram(jax.jit(step), [table], [0])
    for rate in (0.5, 2.0):
        found = program.run([IDS], [rate], [table])
        assert found is not None
        [value], [change] = found
        assert float(value) == 2 * (10**2 + 11**2) + 6**2 + 7**2
        assert isinstance(change, RowChange)
        assert change.ids.tolist() == [3, 5]
        np.testing.assert_allclose(change.values, -rate * np.array([2 * TABLE[3], 4 * TABLE[5]]))
    assert table.residence.asked == [[3, 5], [3, 5]]


@pytest.mark.parametrize(
    "function",
    [
        lambda values, arrays, numbers: ([values[0].sum() + loss(values[0], arrays[0])], []),
        lambda values, arrays, numbers: ([values[0][values[0][arrays[0], 0].astype(int)]], []),
    ],
    ids=["sum", "id from a lookup"],
)
def test_a_table_that_is_used_otherwise_travels_whole(function: Any, capfd: pytest.CaptureFixture[str]) -> None:
    table = Table(f"table used otherwise {id(function)}")
    assert RowProgram(jax.jit(function), [table], []).run([IDS], [], [table]) is None
    assert table.residence.asked == []
    assert f"{table.path}: all of its 200 rows travel" in capfd.readouterr().err


def test_a_program_of_local_variables_is_left_alone() -> None:
    local = Table()
    local.residence = None  # type: ignore[assignment]
    assert RowProgram(jax.jit(step), [local], [0]).run([IDS], [1.0], [local]) is None


def test_sizes_of_blocks() -> None:
    assert [block_size(count) for count in (1, 63, 64, 127, 128)] == [64, 64, 128, 128, 256]
