"""Programs that read and change only those rows of tables that they look up.

Where a variable lives elsewhere, a program that looks rows up in it need not have the others. It runs in two parts:

1. the ids that it looks up; XLA drops all the rest;
2. the whole, given the rows of these ids (`program.rules.row_lookups`); the gradient of a table is of these rows.

Where it uses a table otherwise (tied weights, a regularizer, an id that comes of another lookup), it gets the whole
table, and the log says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from stratagem.core.log import announce_once
from stratagem.program.compat import needed_part, stored_dtype
from stratagem.program.interpret import shapes_of, trace
from stratagem.program.remote_values import Known, RowChange, RowsOf, Taken, lives_elsewhere, values_of
from stratagem.program.rules.row_lookups import Lookups, TableRows, Unknown, looked_up

_LEAST_ROWS: Final = 64
"""A block has so many rows, or twice as many, and so on: each size is compiled once."""


class _UsedOtherwise(Exception):
    """A table is used for more than lookups."""

    def __init__(self, table: int, how: str) -> None:
        super().__init__(how)
        self.table = table


class RowProgram:
    """A program that is given the rows it looks up, where that is less than its tables.

    Args:
        compiled: A jitted function of the values of variables, arrays, and numbers. It returns outputs, and new
            values of some variables.
        variables: The variables.
        assigned: Which of them get new values.
    """

    def __init__(self, compiled: Any, variables: Sequence[Any], assigned: Sequence[int]) -> None:
        self._compiled = compiled
        self._variables = variables
        self._assigned = list(assigned)
        self._tables = {i for i, v in enumerate(variables) if lives_elsewhere(v) and v.shape and not _is_stream(v)}
        self._prepared = False

    def run(
        self, arrays: Sequence[Any], numbers: Sequence[Any], wanted: list[Any]
    ) -> tuple[list[Any], list[Any]] | None:
        """Run the program; return outputs and new values, rows of those of tables (`RowChange`).

        Args:
            arrays: Its arrays.
            numbers: Its numbers.
            wanted: What to read (`rules.streams`); what a stream has given is noted there.

        Returns:
            None where it needs the whole of all its variables.
        """
        if not self._tables or any(isinstance(array, Tracer) for array in arrays):
            return None
        if not self._prepared:
            self._prepare(arrays, numbers)
            self._prepared = True
        return self._run(arrays, numbers, wanted) if self._tables else None

    def _prepare(self, arrays: Sequence[Any], numbers: Sequence[Any]) -> None:
        """Find out which variables are tables, and make the two parts of the program."""
        values = [jax.ShapeDtypeStruct(v.shape, jnp.dtype(stored_dtype(v))) for v in self._variables]
        traced = self._compiled.trace(values, list(arrays), list(numbers))
        self._traced: ClosedJaxpr = traced.jaxpr
        self._outputs = len(traced.out_info[0])
        self._tables &= looked_up(self._traced)
        if self._traced.effects:
            self._tables.clear()  # they would happen in both parts
        _, needed = needed_part(self._traced.jaxpr, [True] * len(self._traced.jaxpr.outvars))
        leaves = jax.tree.leaves((values, list(arrays), list(numbers)))
        while self._tables:
            inputs = {i: leaf for i, leaf in enumerate(leaves) if needed[i] or i in self._tables}
            self._inputs = list(inputs)
            """The values, arrays and numbers that the program needs, by their place among all of them."""
            try:
                self._find, self._early = self._ids_program(inputs)
                break
            except _UsedOtherwise as used:
                self._give_up(used.table, str(used))
        self._with_rows = jax.jit(self._rewritten)

    def _ids_program(self, inputs: Mapping[int, Any]) -> tuple[Callable[..., list[Any]], list[int]]:
        """Return a function of some inputs that gives the ids looked up in each table, and which inputs.

        Raises:
            _UsedOtherwise: A table is needed whole.
        """
        tables = sorted(self._tables)
        places = [*tables, *(i for i in inputs if i not in self._tables)]
        row = {i: jax.ShapeDtypeStruct((1, *self._variables[i].shape[1:]), inputs[i].dtype) for i in tables}

        def ids(given: list[Any]) -> list[list[Any]]:
            blocks = {table: (np.zeros(1, np.int32), given[n]) for n, table in enumerate(tables)}
            lookups = Lookups(self._blocks(blocks))
            self._evaluated(lookups, dict(zip(places, given, strict=True)))
            return [lookups.looked_up[table] for table in tables]

        closed, structure = trace(ids, [[row.get(i, inputs.get(i)) for i in places]])
        program, constants = closed.jaxpr, closed.consts
        program = program.replace(constvars=[], invars=[*program.constvars, *program.invars])
        program, needed = needed_part(program, [True] * len(program.outvars))
        needed_inputs = [i for i, is_needed in zip(places, needed[len(constants) :], strict=True) if is_needed]
        for table, looked_up_ids in zip(tables, structure.unflatten(closed.out_avals), strict=True):
            if table in needed_inputs:
                raise _UsedOtherwise(table, "an id is the result of another lookup")
            if not 0 < sum(ids.size for ids in looked_up_ids) < self._variables[table].shape[0]:
                raise _UsedOtherwise(table, "")
        constants = [value for value, is_needed in zip(constants, needed, strict=False) if is_needed]
        find = jax.jit(jaxpr_as_fun(ClosedJaxpr(program, ())))
        return lambda given: structure.unflatten(find(*constants, *given)), needed_inputs

    def _blocks(self, blocks: Mapping[int, tuple[Any, Any]]) -> dict[int, tuple[tuple[int, ...], Any, Any]]:
        return {table: (tuple(self._variables[table].shape), *block) for table, block in blocks.items()}

    def _evaluated(self, lookups: Lookups, given: Mapping[int, Any]) -> list[Any]:
        """Run the trace; blocks may only come out as new values of what takes rows."""
        known = {**given, **lookups.blocks}
        shapes = shapes_of(self._traced.jaxpr.invars)
        # Zeros in the place of what no result needs: not even they are made.
        inputs = [known[i] if i in known else jnp.zeros(each.shape, each.dtype) for i, each in enumerate(shapes)]
        results = lookups.evaluate(self._traced, inputs)
        for place, result in enumerate(results):
            if isinstance(result, Unknown):
                raise _UsedOtherwise(result.table, result.how)
            if isinstance(result, TableRows):
                changed = place - self._outputs
                if changed < 0 or not result.others_known or not _takes_rows(self._variables[self._assigned[changed]]):
                    raise _UsedOtherwise(result.table, "it, or its gradient, is a result")
        return results

    def _rewritten(self, given: dict[int, Any], blocks: dict[int, tuple[Any, Any]]) -> list[Any]:
        results = self._evaluated(Lookups(self._blocks(blocks)), given)
        self._table_of = {place: each.table for place, each in enumerate(results) if isinstance(each, TableRows)}
        return [each.rows if isinstance(each, TableRows) else jnp.asarray(each) for each in results]

    def _run(
        self, arrays: Sequence[Any], numbers: Sequence[Any], to_read: list[Any]
    ) -> tuple[list[Any], list[Any]] | None:
        count = len(self._variables)
        known: dict[int, Any] = {count + i: value for i, value in enumerate([*arrays, *numbers])}
        early = [i for i in self._early if i < count]
        known.update(_read(to_read, early))
        found = self._find([known[i] for i in self._early])
        wanted = {
            table: _distinct(ids, self._variables[table].shape[0])
            for table, ids in zip(sorted(self._tables), found, strict=True)
        }
        later = [i for i in self._inputs if 0 <= i < count and i not in known]
        known.update(_read(to_read, later, {i: RowsOf(self._variables[i], ids) for i, ids in wanted.items()}))
        blocks = {table: _padded(ids, known.pop(table), self._variables[table]) for table, ids in wanted.items()}
        given = {i: known[i] for i in self._inputs if i in known}
        results: list[Any] = self._with_rows(given, blocks)
        for place, table in self._table_of.items():
            rows, ids = np.asarray(results[place]), wanted[table]
            if np.isnan(rows[-1].astype("float32")).any():  # a norm, or a scale, that was not finite: this time only
                return None
            if rows[-1].any():
                self._give_up(table, "its gradient is not zero in rows that were not looked up")
                self._prepared = False
                return self.run(arrays, numbers, to_read)
            results[place] = RowChange(ids, rows[: len(ids)])
        return results[: self._outputs], results[self._outputs :]

    def _give_up(self, table: int, how: str) -> None:
        self._tables.discard(table)
        if how:
            variable = self._variables[table]
            announce_once(
                f"{variable.path}: all of its {variable.shape[0]} rows travel, not only those that are looked up. The "
                f"program also uses the variable in another way: {how}."
            )


def _read(wanted: list[Any], places: Sequence[int], rows: Mapping[int, RowsOf] | None = None) -> dict[int, Any]:
    """Return values by their places; what a stream has given is given once, also where the program runs again."""
    values = values_of([(rows or {}).get(place, wanted[place]) for place in places])
    found = dict(zip(places, values, strict=True))
    for place, value in found.items():
        if isinstance(wanted[place], Taken):
            wanted[place] = Known(value)
    return found


def _is_stream(variable: Any) -> bool:
    return getattr(variable, "is_stream", False)


def block_size(count: int) -> int:
    """Return the number of rows of a block with room for some, and for at least one more."""
    return max(_LEAST_ROWS, 1 << count.bit_length())


def _takes_rows(variable: Any) -> bool:
    return getattr(variable, "takes_rows", False)


def _distinct(ids: Sequence[Any], rows: int) -> np.ndarray:
    """Return the ids that a table has, ascending, each once."""
    distinct = np.unique(np.concatenate([np.asarray(each).ravel() for each in ids]))
    return distinct[distinct < rows]


def _padded(ids: np.ndarray, rows: np.ndarray, variable: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and rows as a block that has room for at least one row more."""
    size = block_size(len(ids))
    all_ids = np.full(size, variable.shape[0], np.int32)
    all_ids[: len(ids)] = ids
    block = np.zeros((size, *rows.shape[1:]), rows.dtype)
    block[: len(ids)] = rows
    return all_ids, block
