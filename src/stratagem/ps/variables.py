"""Keras variables whose values live on parameter servers.

`RemoteVariable` is an ordinary `keras.Variable` to layers, tapes and programs. A program that runs on a worker reads
all variables it touches in one request and sends all changes in another. What is sent tells what was *done*, not what
came out, so that workers do not undo one another's work:

| in the program                          | what is sent        | effect on the server                               |
| --------------------------------------- | ------------------- | -------------------------------------------------- |
| `optimizer.apply(gradients, variables)` | the gradients       | the optimizer's update, at the value of that moment |
| `variable.assign_add(x)`, `assign_sub`  | the sum of all `x`  | added; no addition is lost                         |
| `assign` to a metric's variable         | the difference      | added                                              |
| `assign` to another variable            | the value           | replaced; the last worker's stays                  |

The states of seed generators live on the workers, each with a stream of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

import jax.numpy as jnp
import keras
import numpy as np

from stratagem.core.errors import UsageError, explain
from stratagem.ps.client import Change, Location, Servers
from stratagem.ps.compat import HeldElsewhere, beside, clipped, iterations_variable
from stratagem.replica.tracing import current_tracing


class RemoteVariable(HeldElsewhere):
    """A variable on the parameter servers. Made of another variable, by `remote`.

    Attributes:
        residence: Where it lives.
        parts: In which parts.
    """

    residence: Residence
    parts: tuple[Location, ...]

    def pulled(self) -> Any:
        if current_tracing() is not None:  # of a variable that the program was not given: only its shape matters
            return jnp.zeros(self.shape, self.stored_dtype)
        return self.residence.read([self])[0]

    def pushed(self, value: Any) -> None:
        self.residence.write([(self, value)])

    @property
    def value(self) -> Any:
        value = super().value
        addend = self.companions.get("add")
        return value if addend is None or current_tracing() is None else value + addend.value.astype(value.dtype)

    def assign(self, value: Any) -> Any:
        """Replace the value; a metric's variable, in a program, adds the difference."""
        if current_tracing() is not None:
            if self.aggregation == "sum":
                return self.assign_add(jnp.asarray(value, self.stored_dtype) - self.value)
            if "add" in self.companions:
                addend = self.companions["add"]
                addend.assign(jnp.zeros(self.shape, self.stored_dtype))
        return super().assign(value)

    def assign_add(self, value: Any) -> Any:
        """Add to the value, at the servers."""
        summand = jnp.broadcast_to(jnp.asarray(value, self.stored_dtype), self.shape)
        addend = companion_of(self, "add", self.shape, self.stored_dtype)
        if current_tracing() is None:
            self.residence.write([(addend, summand)])
        else:
            addend.assign(addend.value + summand)
        return self.value

    def assign_sub(self, value: Any) -> Any:
        """Subtract from the value, at the servers."""
        return self.assign_add(-jnp.asarray(value, self.stored_dtype))


class Companion(HeldElsewhere):
    """Stands beside a remote variable or optimizer; what a program assigns to it is sent, under its purpose.

    Attributes:
        residence: Where it is sent.
        purpose: "add", "rate", "iterations", or "gradient" with the optimizer's name behind it.
        of: The variable or optimizer.
    """

    residence: Residence
    purpose: str
    of: Any

    def pulled(self) -> Any:
        return jnp.asarray(_zeros(tuple(self.shape), self.stored_dtype))

    def pushed(self, value: Any) -> None:
        self.residence.write([(self, value)])


class Residence:
    """The parameter servers, as the home of the variables of one task.

    Args:
        servers: The servers.
    """

    def __init__(self, servers: Servers) -> None:
        self.servers = servers

    def read(self, variables: Sequence[Any]) -> list[Any]:
        """Return the values of variables and companions, in one request to each server."""
        remote = [variable for variable in variables if isinstance(variable, RemoteVariable)]
        values = iter(self.servers.read([variable.parts for variable in remote]) if remote else [])
        return [
            jnp.asarray(next(values)) if isinstance(variable, RemoteVariable) else variable.pulled()
            for variable in variables
        ]

    def write(self, changes: Sequence[tuple[Any, Any]]) -> None:
        """Send new values, additions and gradients, in one request to each server and in this order."""
        sets = [Change("set", each.parts, value) for each, value in changes if isinstance(each, RemoteVariable)]
        companions = [(each, value) for each, value in changes if isinstance(each, Companion)]
        adds = [Change("add", each.of.parts, value) for each, value in companions if each.purpose == "add"]
        points = {(each.of.remote_name, each.purpose): value for each, value in companions if each.purpose in _POINT}
        applied = []
        for each, gradient in companions:
            kind, _, optimizer = each.purpose.partition(" ")
            if kind == "gradient":
                more = {
                    "optimizer": optimizer,
                    "iterations": int(points[optimizer, "iterations"]),
                    "rate": float(points[optimizer, "rate"]),
                }
                applied.append(Change("apply", each.of.parts, gradient, more))
        self.servers.change([*sets, *adds, *applied])


_POINT: Final = ("iterations", "rate")
"""Where training stands when an optimizer is applied."""


@functools.cache
def _zeros(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.zeros(shape, jnp.dtype(dtype))


def companion_of(owner: Any, purpose: str, shape: Sequence[int], dtype: str) -> Companion:
    """Return a companion, made when it is first asked for.

    Args:
        owner: A remote variable or optimizer: `companions`, `residence` and `name`.
        purpose: What it is for.
        shape: Of what is assigned to it.
        dtype: The same.
    """
    if purpose not in owner.companions:
        variable = owner if isinstance(owner, keras.Variable) else iterations_variable(owner)
        name = f"{owner.name}_{purpose.partition(' ')[0]}"
        more = {"residence": owner.residence, "purpose": purpose, "of": owner}
        owner.companions[purpose] = beside(variable, Companion, name, shape, dtype, more)
    return owner.companions[purpose]


def apply_remotely(optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any] | None) -> None:
    """Send gradients to the servers, which update the variables: `apply` of an optimizer on a worker.

    Clipping and loss scaling happen here, on whole gradients; the rest where the variables live.

    Args:
        optimizer: A Keras optimizer with `remote_name`, `residence` and `companions`.
        gradients: One for each variable; None where there is none.
        variables: Remote variables.

    Raises:
        UsageError: A variable is none, or is updated twice in one program.
    """
    pairs = [(g, v) for g, v in zip(gradients, variables or (), strict=True) if g is not None]
    if not pairs:
        raise UsageError(
            explain(
                "optimizer.apply was given no gradient, or no variables.",
                "There is nothing to update.",
                "Write optimizer.apply_gradients(zip(gradients, model.trainable_variables)).",
            )
        )
    purpose = f"gradient {optimizer.remote_name}"
    changes: list[tuple[Any, Any]] = [
        (companion_of(optimizer, "rate", (), "float32"), jnp.asarray(optimizer.learning_rate, "float32")),
        (companion_of(optimizer, "iterations", (), "int32"), jnp.asarray(iterations_variable(optimizer).value)),
    ]
    for gradient, variable in zip(clipped(optimizer, [g for g, _ in pairs]), [v for _, v in pairs], strict=True):
        _require_remote(variable)
        target = companion_of(variable, purpose, variable.shape, variable.stored_dtype)
        _require_first(target)
        changes.append((target, jnp.asarray(gradient, variable.stored_dtype)))
    if current_tracing() is None:
        optimizer.residence.write(changes)
    else:
        for target, value in changes:
            target.assign(value)
    iterations_variable(optimizer).assign_add(1)


def _require_remote(variable: Any) -> None:
    if not isinstance(variable, RemoteVariable):
        raise UsageError(
            explain(
                f"optimizer.apply was given {getattr(variable, 'path', variable)!r}, no variable of the chief's.",
                "It does not live on the parameter servers, so no other worker would see the update.",
                "Make the model on the chief, in strategy.scope(), before it is used in a scheduled function.",
            )
        )


def _require_first(target: Companion) -> None:
    tracing = current_tracing()
    if tracing is not None and id(target) in tracing.scope.assigned:
        raise UsageError(
            explain(
                f"One traced function updates {target.of.path} twice.",
                "The servers make the update after the function has ended: it would go on with old values.",
                "Schedule the function once for each step.",
            )
        )


def remote_state(residence: Residence, parts: Sequence[Location]) -> dict[str, Any]:
    """Return the attributes that make a variable a remote one."""
    return {"residence": residence, "parts": tuple(parts), "companions": {}}


def is_seed(variable: keras.Variable) -> bool:
    """Whether a variable is the state of a seed generator."""
    return variable.name == "seed_generator_state" and tuple(variable.shape) == (2,)
