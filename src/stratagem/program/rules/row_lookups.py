"""Interpretation of a program with a few rows of its tables in the place of the tables.

A trace knows shapes, so a program can be traced with whole tables in no memory. Where it uses a table for nothing but
lookups (`keras.layers.Embedding`, `keras.ops.take`, `table[ids]`: each one a gather of rows), the trace can be run with
a block of those rows in the place of the table. To look an id up becomes to look up its position in the block. The
gradient, which JAX adds up in zeros of the table's shape, is added up in a block.

A block ends with a row more, which stands for all rows of the table that are not in it: zero in a new gradient. So
what is done to a whole gradient, such as clipping by its norm, is done to a block, with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Var

from stratagem.program.compat import parameters, run_equation
from stratagem.program.interpret import interpret

_CALLS: Final = frozenset({"jit", "pjit", "closed_call", "custom_jvp_call"})

_BY_ELEMENT: Final = frozenset(
    {
        *("add", "add_any", "sub", "mul", "div", "neg", "abs", "sign", "max", "min", "clamp"),
        *("square", "sqrt", "rsqrt", "integer_pow", "pow", "exp", "log", "tanh"),
        *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "is_finite", "select_n"),
        *("convert_element_type", "reduce_precision", "copy"),
    }
)
"""Primitives that make each element of the elements at its place."""

_REDUCTIONS: Final = frozenset({"reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or"})
"""In all but the sum it does not matter how often a row occurs."""


@dataclass(frozen=True)
class TableRows:
    """Stands for an array with as many rows as a table.

    Args:
        table: Which table: its place among the variables.
        shape: Of the array.
        rows: Those of the ids that are looked up, then copies of one that stands for all others.
        others_known: Whether it does; the other rows of the table itself are not at hand.
    """

    table: int
    shape: tuple[int, ...]
    rows: Any
    others_known: bool


@dataclass(frozen=True)
class Unknown:
    """Stands for a value that takes the whole table; no harm if nothing needs it.

    Args:
        table: Which table.
        how: What the table is used for.
    """

    table: int
    how: str


@dataclass(frozen=True)
class _Uniform:
    """An array whose rows are all alike, such as zeros.

    Args:
        whole: The array; XLA never makes it when nothing needs it.
        row: One row, shape (1, ...).
    """

    whole: Any
    row: Any


class Lookups:
    """One run through a trace, with blocks of rows for tables.

    Args:
        tables: By the place of a table: its shape, the ids in its block (ascending, then numbers greater than any),
            and the block.
    """

    def __init__(self, tables: Mapping[int, tuple[tuple[int, ...], Any, Any]]) -> None:
        self._ids_of = {table: ids for table, (_, ids, _) in tables.items()}
        self.blocks = {table: TableRows(table, shape, rows, False) for table, (shape, _, rows) in tables.items()}
        self.looked_up: dict[int, list[Any]] = {table: [] for table in tables}
        """The ids that are looked up in each table; one that it does not have is its number of rows."""
        self._rows = {shape[0] for shape, _, _ in tables.values()}
        self._tables_of: dict[tuple[int, tuple[int, ...]], set[int]] = {}
        self._indices: list[Any] = []  # held, so that an identity stays that of one index

    def evaluate(self, traced: ClosedJaxpr, inputs: Sequence[Any]) -> list[Any]:
        """Return the results of a program: arrays, rows of tables, and `Unknown`."""
        return [_whole(result) for result in interpret(traced, inputs, self._results)]

    def _results(self, eqn: JaxprEqn, operands: list[Any]) -> Sequence[Any]:
        if eqn.primitive.name in _CALLS:
            return self.evaluate(_called(eqn), operands)
        name = eqn.primitive.name
        unknown = next((operand for operand in operands if isinstance(operand, Unknown)), None)
        if unknown is not None:
            return [unknown] * len(eqn.outvars)
        block = next((operand for operand in operands if isinstance(operand, TableRows)), None)
        if block is None:
            return self._ordinary(name, eqn, operands)
        if name == "gather" and operands[0] is block and _is_lookup(eqn) and not block.others_known:
            return [self._gathered(block, _whole(operands[1]), eqn)]
        if name in _REDUCTIONS and 0 in parameters(eqn)["axes"] and block.others_known:
            return [_summed(block, eqn)] if name == "reduce_sum" else run_equation(eqn, [block.rows])
        if name in _BY_ELEMENT:
            return [self._by_element(block, eqn, operands)]
        return [Unknown(block.table, name)] * len(eqn.outvars)

    def _ordinary(self, name: str, eqn: JaxprEqn, operands: list[Any]) -> Sequence[Any]:
        """Run an equation that has no block among its operands; it may make one, or an array of equal rows."""
        if name == "scatter-add" and isinstance(operands[0], _Uniform) and _is_addition_of_rows(eqn):
            tables = self._tables_of.get((id(_whole(operands[1])), operands[0].whole.shape), set())
            if len(tables) == 1:  # a gradient's, which JAX adds up where the rows were looked up
                return [self._scattered(next(iter(tables)), operands[0], [_whole(each) for each in operands[1:]], eqn)]
        results = run_equation(eqn, [_whole(operand) for operand in operands])
        if name == "broadcast_in_dim" and results[0].ndim and results[0].shape[0] in self._rows:
            return [_uniform(results[0], operands[0], parameters(eqn)["broadcast_dimensions"])]
        return results

    def _gathered(self, block: TableRows, index: Any, eqn: JaxprEqn) -> Any:
        drops = parameters(eqn)["mode"] == lax.GatherScatterMode.FILL_OR_DROP
        ids = _ids(index, block.shape[0], drops=drops)
        self.looked_up[block.table].append(ids)
        self._indices.append(index)
        self._tables_of.setdefault((id(index), block.shape), set()).add(block.table)
        positions = self._positions(block.table, ids)
        return eqn.primitive.bind(block.rows, positions, **{**eqn.params, **_ANY_ORDER})

    def _scattered(self, table: int, zeros: _Uniform, added: Sequence[Any], eqn: JaxprEqn) -> TableRows:
        index, updates = added
        # XLA leaves out what it would add outside the array, also where it was promised that there is no such thing.
        drops = parameters(eqn)["mode"] != lax.GatherScatterMode.CLIP
        positions = self._positions(table, _ids(index, zeros.whole.shape[0], drops=drops))
        rows = _repeated(zeros.row, self._ids_of[table].shape[0])
        mode = {"mode": lax.GatherScatterMode.FILL_OR_DROP}
        rows = eqn.primitive.bind(rows, positions, updates, **{**eqn.params, **_ANY_ORDER, **mode})
        return TableRows(table, zeros.whole.shape, rows, True)

    def _positions(self, table: int, ids: Any) -> Any:
        """Return an index of where ids stand in a block; outside it for those that the table does not have."""
        inside = self._ids_of[table]
        found = jnp.searchsorted(inside, ids, method="scan_unrolled").astype(jnp.int32)
        return jnp.where(ids < self.blocks[table].shape[0], found, inside.shape[0])[..., None]

    def _by_element(self, block: TableRows, eqn: JaxprEqn, operands: list[Any]) -> Any:
        rows, others_known = [], True
        for operand in operands:
            if isinstance(operand, TableRows) and operand.table == block.table:
                rows.append(operand.rows)
                others_known = others_known and operand.others_known
            elif isinstance(operand, _Uniform) and operand.whole.shape[0] == block.shape[0]:
                rows.append(_repeated(operand.row, block.rows.shape[0]))
            elif not isinstance(operand, TableRows) and jnp.shape(_whole(operand))[:1] in ((), (1,)):
                rows.append(_whole(operand))
            else:
                return Unknown(block.table, eqn.primitive.name)
        (result,) = run_equation(eqn, rows)
        return TableRows(block.table, (*block.shape[:1], *result.shape[1:]), result, others_known)


_ANY_ORDER: Final[Mapping[str, Any]] = {"indices_are_sorted": False, "unique_indices": False}


def looked_up(traced: ClosedJaxpr) -> set[int]:
    """Return which inputs of a program some lookup takes rows of."""
    origin = {var: place for place, var in enumerate(traced.jaxpr.invars)}
    found: set[int] = set()
    for eqn in traced.jaxpr.eqns:
        places = [origin.get(atom, -1) if isinstance(atom, Var) else -1 for atom in eqn.invars]
        if eqn.primitive.name in _CALLS:
            found.update(places[place] for place in looked_up(_called(eqn)))
        elif eqn.primitive.name == "gather" and _is_lookup(eqn):
            found.add(places[0])
        elif eqn.primitive.name == "convert_element_type":
            origin[eqn.outvars[0]] = places[0]
    return found - {-1}


def _called(eqn: JaxprEqn) -> ClosedJaxpr:
    return next(value for value in eqn.params.values() if isinstance(value, ClosedJaxpr))


def _is_lookup(eqn: JaxprEqn) -> bool:
    """Whether a gather takes whole rows of an array."""
    given = parameters(eqn)
    numbers, sizes = given["dimension_numbers"], given["slice_sizes"]
    places = (numbers.collapsed_slice_dims, numbers.start_index_map, numbers.operand_batching_dims)
    array: Any = eqn.invars[0].aval
    return places == ((0,), (0,), ()) and tuple(sizes) == (1, *array.shape[1:])


def _is_addition_of_rows(eqn: JaxprEqn) -> bool:
    numbers = parameters(eqn)["dimension_numbers"]
    places = (numbers.inserted_window_dims, numbers.scatter_dims_to_operand_dims, numbers.operand_batching_dims)
    return places == ((0,), (0,), ())


def _uniform(whole: Any, operand: Any, dimensions: Sequence[int]) -> Any:
    """Return the result of a `broadcast_in_dim`, as `_Uniform` if its rows are equal."""
    if 0 in dimensions and jnp.shape(_whole(operand))[dimensions.index(0)] != 1:
        return whole
    return _Uniform(whole, lax.broadcast_in_dim(jnp.asarray(_whole(operand)), (1, *whole.shape[1:]), dimensions))


def _whole(value: Any) -> Any:
    return value.whole if isinstance(value, _Uniform) else value


def _repeated(row: Any, count: int) -> Any:
    return jnp.broadcast_to(row, (count, *row.shape[1:]))


def _ids(index: Any, rows: int, *, drops: bool) -> Any:
    """Return the ids of the rows that an index means; `rows` for those that are left out."""
    index = index[..., 0]
    if index.dtype.itemsize < 4:
        index = index.astype(jnp.int32)
    if drops:
        return jnp.where((index >= 0) & (index < rows), index, rows).astype(jnp.int32)
    return jnp.clip(index, 0, rows - 1).astype(jnp.int32)


def _summed(block: TableRows, eqn: JaxprEqn) -> Any:
    """Return the sum over all rows: those of the block, and as often as there are others, the row for these."""
    (total,) = run_equation(eqn, [block.rows])
    other = jnp.sum(block.rows[-1], [axis - 1 for axis in parameters(eqn)["axes"] if axis != 0])
    return total + jnp.where(other == 0, 0, other * (block.shape[0] - block.rows.shape[0])).astype(total.dtype)
