"""Reading of variables that rest in shards of several processes: a process that reads them is lent the wholes.

In one process JAX puts the shards together when somebody reads an array. Of several processes none can read what others
hold, so all put it together at one point. A variable has its shard back afterwards; or before the next step, where a
callback may read it after an epoch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from stratagem.mesh.divided import is_divided, sharding_of
from stratagem.mesh.mesh import resharding
from stratagem.mesh.shards import rests_divided

_NAME = "lent_whole"
"""Attribute of a variable: its shard, and the whole that stands in its place."""


PutsTogether = Callable[[Sequence[jax.Array], Callable[[int, np.ndarray], None]], None]
"""Puts values together: function of them, and of what is called with the number of each and the whole."""


def put_together_by_xla(values: Sequence[jax.Array], use: Callable[[int, np.ndarray], None]) -> None:
    """Put values together on all devices, one at a time. All workers call it at the same point.

    Args:
        values: Arrays that are divided.
        use: Called with the number of each, and the whole.
    """
    for number, value in enumerate(values):
        whole = resharding(NamedSharding(sharding_of(value).mesh, PartitionSpec()))(value)
        use(number, np.asarray(whole.addressable_data(0)))


_puts_together: list[PutsTogether] = [put_together_by_xla]
"""Functions that put values together; the last one counts in this process."""


def lend_by(put_together: PutsTogether) -> None:
    """Let values be put together otherwise than by XLA, where the workers of this process may change.

    Args:
        put_together: Does it. It may call what it is given once more for each.
    """
    _puts_together.append(put_together)


def lend(variables: Iterable[Any], *, reads: bool) -> list[Any]:
    """Put the values of variables together. All workers call it at the same point with the same variables.

    They are put together one by one: a worker that does not read them holds no more than one.

    Args:
        variables: Variables; those that this process can read are left alone.
        reads: Whether this worker reads them.

    Returns:
        Those that were lent to this worker now.
    """
    shards = [(variable, _resting(variable, variable.value)) for variable in variables]
    # Not those that have a value for each replica.
    shards = [(each, shard) for each, shard in shards if is_divided(shard) and shard.shape == tuple(each.shape)]
    lent: dict[int, Any] = {}

    def use(number: int, whole: np.ndarray) -> None:
        variable, shard = shards[number]
        if reads and (shard is variable.value or number in lent):
            own = jnp.asarray(whole)
            setattr(variable, _NAME, (shard, own))
            variable.assign(own)
            lent[number] = variable

    if shards:
        _puts_together[-1]([shard for _, shard in shards], use)
    return list(lent.values())


def give_back(lent: Iterable[Any]) -> None:
    """Give variables their shards back, but for those that were assigned something else meanwhile.

    Args:
        lent: What `lend` returned.
    """
    for variable in lent:
        value = variable.value
        shard = _resting(variable, value)
        if shard is not value:
            variable.assign(shard)
        delattr(variable, _NAME)


def divided_value(variable: Any) -> Any:
    """Return the value of a variable that rests in shards of several processes; None of one that this one can read."""
    if not rests_divided(variable):
        return None
    value = _resting(variable, variable.value)
    return value if is_divided(value) else None


def resting(variables: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Return values with the shards in the place of wholes that were lent.

    Args:
        variables: Variables.
        values: One for each.
    """
    return [_resting(variable, value) for variable, value in zip(variables, values, strict=True)]


@contextlib.contextmanager
def readable(variables: Iterable[Any], *, reads: bool) -> Iterator[None]:
    """Let a worker read variables whole in this context. All workers enter it at the same point.

    Args:
        variables: Variables.
        reads: Whether this worker reads them.
    """
    lent = lend(variables, reads=reads)
    try:
        yield
    finally:
        give_back(lent)


def _resting(variable: Any, value: Any) -> Any:
    known = getattr(variable, _NAME, None)
    return known[0] if known is not None and value is known[1] else value
