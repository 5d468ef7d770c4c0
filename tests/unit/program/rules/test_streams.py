"""How far a program goes on in its streams is known before it runs; what it draws, nobody else draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stratagem.program.remote_values import Known, Taken, values_of
from stratagem.program.rules.streams import Streams


class Residence:
    """Goes on when a position is taken; `meanwhile` is what another draws between a look and an exchange."""

    def __init__(self) -> None:
        self.meanwhile: list[int] = []
        self.exchanges = 0

    def read(self, variables: Sequence[Any]) -> list[Any]:
        values = []
        for each in variables:
            variable = each.variable if isinstance(each, Taken) else each
            values.append(variable.held.copy())
            if isinstance(each, Taken):
                variable.held += each.step
        return values

    def exchange(self, variable: Any, before: np.ndarray, after: np.ndarray) -> bool:
        self.exchanges += 1
        if self.meanwhile:
            variable.held[1] += self.meanwhile.pop()
        if not np.array_equal(variable.held, before):
            return False
        variable.held = np.array(after)
        return True


class Remote:
    def __init__(self, held: Any, **more: Any) -> None:
        self.residence, self.held = Residence(), np.array(held)
        self.shape, self._dtype = self.held.shape, self.held.dtype.name
        vars(self).update(more)


ON = np.array([0, 1], "uint32")


def streams_of(function: Any, variables: Sequence[Remote], assigned: Sequence[int]) -> Streams:
    return Streams(jax.jit(function), variables, assigned)


def test_a_program_takes_what_it_always_draws() -> None:
    stream, weight = Remote(np.array([7, 3], "uint32"), is_stream=True), Remote(np.zeros(2, "float32"))

    def draws_three_times(values: Any, arrays: Any, numbers: Any) -> Any:
        seed = values[1]
        for _ in range(3):
            seed = seed + ON
        jax.debug.callback(lambda each: None, seed)
        return [values[0] + arrays[0]], [seed]

    streams = streams_of(draws_three_times, [weight, stream], [1])
    wanted = streams.wanted([jnp.ones(2)], [])
    assert (wanted[0], wanted[1].variable, wanted[1].step.tolist()) == (weight, stream, [0, 3])
    assert [values_of(streams.wanted([jnp.ones(2)], []))[1].tolist() for _ in range(2)] == [[7, 3], [7, 6]]
    assert streams.taken == {1}


def test_what_it_draws_may_depend_on_its_arguments_and_draws() -> None:
    stream = Remote(np.array([7, 0], "uint32"), is_stream=True)

    def until(values: Any, arrays: Any, numbers: Any) -> Any:
        """Goes on to the next position that the argument divides."""
        end = jax.lax.while_loop(lambda seed: seed[1] % arrays[0] != 0, lambda seed: seed + ON, values[0] + ON)
        return [end[1]], [end]

    streams = streams_of(until, [stream], [0])
    for divisor, begins, ends in ((4, 0, 4), (3, 4, 6)):
        (known,) = streams.wanted([jnp.uint32(divisor)], [])
        assert isinstance(known, Known)
        assert (known.value.tolist(), stream.held.tolist()) == ([7, begins], [7, ends])
    stream.residence.meanwhile = [1]  # another worker is quicker
    (known,) = streams.wanted([jnp.uint32(5)], [])
    assert (known.value.tolist(), stream.held.tolist()) == ([7, 7], [7, 10])
    assert stream.residence.exchanges == 4


def test_a_position_that_is_assigned_is_no_draw() -> None:
    stream = Remote(np.array([7, 3], "uint32"), is_stream=True)
    streams = streams_of(lambda values, arrays, numbers: ([], [arrays[0]]), [stream], [0])
    assert streams.wanted([jnp.zeros(2, "uint32")], []) == [stream]
    assert streams.taken == set()


@pytest.mark.parametrize("returned", [True, False])
def test_a_number_is_taken_where_the_program_returns_it(*, returned: bool) -> None:
    count = Remote(np.array(5))
    added = Remote(np.array(0), adds_to=count)

    def adds_two(values: Any, arrays: Any, numbers: Any) -> Any:
        summand = values[1] + 2
        return [values[0] + summand if returned else arrays[0]], [summand]

    streams = streams_of(adds_two, [count, added], [1])
    wanted = streams.wanted([jnp.ones(())], [])
    assert streams.taken == ({1} if returned else set())
    assert [type(each) for each in wanted] == [Taken if returned else Remote, Remote]


def test_what_is_added_may_depend_on_arguments() -> None:
    count = Remote(np.array(5))
    added = Remote(np.array(0), adds_to=count)
    step = lambda values, arrays, numbers: ([values[0] + arrays[0]], [values[1] + arrays[0]])  # noqa: E731
    streams = streams_of(step, [count, added], [1])
    assert streams.wanted([jnp.array(3)], []) == [count, added]
    assert streams.taken == set()
