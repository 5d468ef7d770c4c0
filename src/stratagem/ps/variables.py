"""Keras variables whose values live on parameter servers.

`RemoteVariable` is an ordinary `keras.Variable` to layers, tapes and programs. A program that runs on a worker reads
all variables it touches in one request and sends all changes in another. A change says what was *done*, not what came
out, so that workers do not undo one another's work:

| in the program                          | what is sent        | effect on the server                               |
| --------------------------------------- | ------------------- | -------------------------------------------------- |
| `optimizer.apply(gradients, variables)` | the gradients; of a | the optimizer's update, at the value of that moment |
|                                         | table, rows         |                                                    |
| `variable.assign_add(x)`, `assign_sub`  | the sum of all `x`  | added; no addition is lost                         |
| `assign` to a metric's variable         | the difference      | added                                              |
| `scatter_add`, `scatter_sub`            | the same            | added                                              |
| `assign` to another variable            | the value           | replaced; the last worker's stays                  |
| `scatter_update` and others             | the rows named      | replaced; others stay as they are (`slices`)       |

The states of seed generators go on when they are read (`streams`). In the synchronous mode, what is sent
together with gradients is a contribution to a round (`synchronous.contributions`).
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import jax
import jax.numpy as jnp
import keras
import numpy as np

from stratagem.core.errors import UsageError
from stratagem.program.compat import innermost_scope
from stratagem.program.remote_values import RowsOf, Taken
from stratagem.program.tracing import current_tracing
from stratagem.ps.changes import Change, Location
from stratagem.ps.client import Servers
from stratagem.ps.compat import HeldElsewhere, beside, iterations_variable
from stratagem.ps.slices import ADDING, of_rows, rows_named, summands
from stratagem.ps.synchronous.contributions import Contribution, adds_together, sets_together


class RemoteVariable(HeldElsewhere):
    """A variable on the parameter servers, made of another variable (`compat.held_elsewhere`).

    Attributes:
        residence: Where it lives.
        parts: In which parts.
    """

    residence: Residence
    parts: tuple[Location, ...]

    @property
    def variables(self) -> list[RemoteVariable]:
        """The parts on the servers, each a variable of its own (`ShardedVariable.variables` of TensorFlow)."""
        if "variables" not in self.companions:
            self.companions["variables"] = [self._part(part, number) for number, part in enumerate(self.parts)]
        return self.companions["variables"]

    def _part(self, part: Location, number: int) -> RemoteVariable:
        if part.rows is None:
            return self
        name, shape = f"{self.name}/part_{number}", (part.rows, *self.shape[1:])
        more = remote_state(self.residence, [replace(part, rows=None)])
        return beside(self, RemoteVariable, name, shape, self.stored_dtype, more)

    def pulled(self) -> Any:
        tracing = current_tracing()
        if tracing is None:
            return jax.device_put(self.residence.read([self])[0])
        # In a scope of Keras's own, which does not look at those around it; or a variable that the program was not
        # given, of which only the shape matters.
        tracing.scope.read.setdefault(id(self), self)
        given = keras.StatelessScope.get_current_value(tracing.scope, self)
        return jnp.zeros(self.shape, self.stored_dtype) if given is None else given

    def pushed(self, value: Any) -> None:
        self.residence.write([(self, value)])

    @property
    def value(self) -> Any:
        value = super().value
        addend = self.companions.get("add")
        return value if addend is None or not _is_recorded() else value + addend.value.astype(value.dtype)

    def assign(self, value: Any) -> Any:
        """Replace the value; a metric's variable, in a program, adds the difference."""
        if _is_recorded():
            if self.aggregation == "sum":
                return self.assign_add(jnp.asarray(value, self.stored_dtype) - self.value)
            if "add" in self.companions:
                addend = self.companions["add"]
                addend.assign(jnp.zeros(self.shape, self.stored_dtype))
            if "named" in self.companions:
                self.companions["named"].assign(jnp.ones(self.shape[:1], bool))
        return super().assign(value)

    def assign_add(self, value: Any) -> Any:
        """Add to the value, at the servers."""
        summand = jnp.broadcast_to(jnp.asarray(value, self.stored_dtype), self.shape)
        if innermost_scope() is not None and not _is_recorded():
            return self.assign(self.value + summand)
        addend = companion_of(self, "add", self.shape, self.stored_dtype)
        if current_tracing() is not None:
            addend.assign(addend.value + summand)
        elif len(self.parts) == 1:
            return jnp.asarray(self.residence.take(self, np.asarray(summand))) + summand
        else:
            self.residence.write([(addend, summand)])
        return self.value

    def assign_sub(self, value: Any) -> Any:
        """Subtract from the value, at the servers."""
        return self.assign_add(-jnp.asarray(value, self.stored_dtype))

    def _assign_slices(self, method: str, change: Callable[..., Any], indices: Any, updates: Any) -> Any:
        """Change slices (`tf.Variable.scatter_add` and others of `stratagem.tf`), and no others."""
        if method in ADDING:
            return self.assign_add(summands(change, tuple(self.shape), self.stored_dtype, indices, updates))
        new = change(self.value, indices, updates)
        if innermost_scope() is not None and not _is_recorded():
            return super().assign(new)
        named, tracing = rows_named(method, self.shape[0], indices), current_tracing()
        if tracing is None:
            self.residence.write([(self, of_rows(new, named))])
            return self.value
        noted = companion_of(self, "named", self.shape[:1], "bool")
        if id(self) not in tracing.scope.assigned:
            before = jnp.zeros(self.shape[:1], bool)
        else:
            before = noted.value if id(noted) in tracing.scope.assigned else jnp.ones(self.shape[:1], bool)
        noted.assign(before | named)
        addend = self.companions.get("add")
        if addend is not None and id(addend) in tracing.scope.assigned:  # it stays with the rows that are not named
            added = addend.value.astype(self.stored_dtype)
            new = new - jnp.where(_by_row(named, new), 0, added)
            addend.assign(jnp.where(_by_row(named, added), 0, added))
        super().assign(new)
        return self.value


def _by_row(named: Any, value: Any) -> Any:
    return named.reshape(-1, *(1,) * (value.ndim - 1))


def _is_recorded() -> bool:
    """Whether a program is being traced that notes what is done to variables: not in a scope of Keras's own inside it
    (`stateless_call`), where they are ordinary ones.
    """
    tracing = current_tracing()
    return tracing is not None and innermost_scope() is tracing.scope


class Companion(HeldElsewhere):
    """Stands beside a remote variable or optimizer; what a program assigns to it is sent, under its purpose.

    Attributes:
        residence: Where it is sent.
        purpose: "add", "named" (which rows are replaced), "rate", "iterations", "counts", "rows", or "gradient" with
            the optimizer's name behind it.
        of: The variable or optimizer.
    """

    residence: Residence
    purpose: str
    of: Any

    @property
    def adds_to(self) -> Any:
        """The number to which it adds, if what is added may be added before the program has ended; else None.

        In rounds it may not. A metric's parts belong together, and are added to at one time.
        """
        early = self.purpose == "add" and not self.of.shape and self.of.aggregation != "sum"
        return self.of if early and self.residence.contribution is None else None

    @property
    def takes_rows(self) -> bool:
        """Whether rows of what is assigned to it may be sent alone."""
        return self.purpose.startswith(GRADIENT)

    def pulled(self) -> Any:
        return _zeros(tuple(self.shape), self.stored_dtype)

    def pushed(self, value: Any) -> None:
        self.residence.write([(self, value)])

    def assign(self, value: Any) -> Any:
        """Note what is to be sent.

        Raises:
            UsageError: It is a second gradient in one program.
        """
        tracing = current_tracing()
        if self.takes_rows and tracing is not None and id(self) in tracing.scope.assigned:
            raise UsageError(
                f"One traced function updates {self.of.path} twice.",
                "The servers make the update after the function has ended, so the function would continue with old "
                "values.",
                "Schedule the function once for each step.",
            )
        return super().assign(value)


class Residence:
    """The parameter servers, as the home of the variables of one task.

    Args:
        servers: The servers.
        make_ready: Called before anything is written.

    Attributes:
        contribution: What the function that runs gives to its round; None where there are no rounds.
    """

    def __init__(self, servers: Servers, make_ready: Callable[[], None] = lambda: None) -> None:
        self.servers = servers
        self.contribution: Contribution | None = None
        self._make_ready = make_ready

    def read(self, variables: Sequence[Any]) -> list[Any]:
        """Return the values of variables and companions, rows (`RowsOf`), and what goes on (`Taken`).

        There is one request to each server.

        Those that come from servers are NumPy arrays: whoever needs them on a device puts all there at once.
        """
        remote = [variable for variable in variables if not isinstance(variable, Companion)]
        parts = [each.variable.parts if isinstance(each, RowsOf | Taken) else each.parts for each in remote]
        ids = [each.ids if isinstance(each, RowsOf) else None for each in remote]
        steps = {place: each.step for place, each in enumerate(remote) if isinstance(each, Taken)}
        if steps:
            self._make_ready()
        values = iter(self.servers.read(parts, ids, steps) if remote else [])
        return [each.pulled() if isinstance(each, Companion) else next(values) for each in variables]

    def take(self, variable: Any, step: np.ndarray) -> np.ndarray:
        """Return the value of a variable, which goes on by a step at the same moment."""
        return self.read([Taken(variable, step)])[0]

    def exchange(self, variable: Any, before: np.ndarray, after: np.ndarray) -> bool:
        """Give a variable that is one part a new value if it still has the one before; return whether it had."""
        self._make_ready()
        return self.servers.exchange(variable.parts[0], before, after)

    def write(self, changes: Sequence[tuple[Any, Any]]) -> None:
        """Send new values, additions and gradients, in one request to each server and in this order.

        A program inside another one only notes them there: what is added follows what is replaced, and stays.
        """
        if current_tracing() is not None:
            for each, value in sorted(changes, key=lambda change: isinstance(change[0], Companion)):
                each.assign(value)
            return
        self._make_ready()
        by_kind: defaultdict[str, list[tuple[Any, Any]]] = defaultdict(list)
        for each, value in changes:
            by_kind[each.purpose.partition(" ")[0] if isinstance(each, Companion) else "set"].append((each, value))
        named = {id(each.of): value for each, value in by_kind["named"]}
        in_round = self.contribution is not None and bool(by_kind[GRADIENT])  # a round takes whole values
        replaced = [
            (v, of_rows(new, named[id(v)]) if id(v) in named and not in_round else new) for v, new in by_kind["set"]
        ]
        made = [Change("set", each.parts, value, {"together": sets_together(each)}) for each, value in replaced]
        for each, value in by_kind["add"]:
            made.append(Change("add", each.of.parts, value, {"together": adds_together(each.of)}))
        points = {(each.of.remote_name, kind): value for kind in _POINT for each, value in by_kind[kind]}
        applies = False
        for each, gradient in by_kind[GRADIENT]:
            optimizer = each.purpose.partition(" ")[2]
            if points.get((optimizer, "counts"), True):
                applies = True
                iterations, rate = int(points[optimizer, "iterations"]), float(points[optimizer, "rate"])
                more = {"optimizer": optimizer, "iterations": iterations, "rate": rate}
                made.append(Change("apply", each.of.parts, gradient, more))
        if applies and self.contribution is not None:
            rows = [float(value) for _, value in by_kind["rows"]]
            self.contribution.add(made, rows[0] if rows else 1.0)
        else:
            self.servers.change(made)


GRADIENT: Final = "gradient"

_POINT: Final = ("iterations", "rate", "counts")
"""Where training stands when an optimizer is applied, and whether the step counts."""


@functools.cache
def _zeros(shape: tuple[int, ...], dtype: str) -> jax.Array:
    """Return the value of what a program only assigns: the same array in every step (making 11 MB takes 2 ms)."""
    with jax.ensure_compile_time_eval():  # also where a program is being traced
        return jnp.zeros(shape, dtype)


def companion_of(owner: Any, purpose: str, shape: Sequence[int], dtype: str) -> Companion:
    """Return a companion, made when it is first asked for.

    Args:
        owner: A remote variable or optimizer: `companions`, `residence` and `name`.
        purpose: What it is for.
        shape: Shape of what is assigned to it.
        dtype: Its dtype.
    """
    if purpose not in owner.companions:
        variable = owner if isinstance(owner, keras.Variable) else iterations_variable(owner)
        name = f"{owner.name}_{purpose.partition(' ')[0]}"
        more = {"residence": owner.residence, "purpose": purpose, "of": owner}
        owner.companions[purpose] = beside(variable, Companion, name, shape, dtype, more)
    return owner.companions[purpose]


def remote_state(residence: Residence, parts: Sequence[Location]) -> dict[str, Any]:
    """Return the attributes that make a variable a remote one."""
    return {"residence": residence, "parts": tuple(parts), "companions": {}}
