"""Arguments that compiled functions have seen, and their programs for files."""

from __future__ import annotations

import gc
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from jax import export as jax_export

import stratagem
from stratagem.core.errors import InputError
from stratagem.data import TensorSpec
from stratagem.loop.exporting import programs_for_file


def test_calls_that_were_traced_are_seen_once() -> None:
    @stratagem.function
    def inner(x: Any, scale: float = 2.0, *, note: Any = None) -> Any:
        return x * scale

    @stratagem.function
    def outer(x: Any) -> Any:
        return inner(x)

    for _ in range(2):
        inner(jnp.ones(2))
        inner(jnp.ones(2), note=object())
        outer(np.ones(3, "float32"))
    assert inner.seen_arguments() == [((TensorSpec((3,)),), {}), ((TensorSpec((2,)),), {})]
    assert outer.seen_arguments() == [((TensorSpec((3,)),), {})]


def test_a_method_has_seen_what_its_object_was_given() -> None:
    class Twice:
        @stratagem.function
        def of(self, x: Any) -> Any:
            return x * 2.0

    one, other = Twice(), Twice()
    one.of(jnp.ones(2))
    other.of.get_concrete_function(TensorSpec((None,)))
    assert one.of.seen_arguments() == [((TensorSpec((2,)),), {})]
    assert other.of.seen_arguments() == [((TensorSpec((None,)),), {})]
    del one
    gc.collect()
    assert Twice().of.seen_arguments() == []


def test_a_program_takes_and_returns_values_of_variables() -> None:
    count, table = keras.Variable(1.0), keras.Variable(np.arange(3.0))

    @stratagem.function(input_signature=[TensorSpec((None, 3))])
    def add(x: Any) -> Any:
        count.assign_add(2.0)
        return {"y": x * table + count}

    (program,) = programs_for_file(add)
    assert program.outputs == {"y": TensorSpec((None, 3))}
    names = {id(count): 1.0, id(table): np.arange(3.0, dtype="float32")}
    values = [jnp.asarray(names[id(variable)]) for variable in program.variables]
    assert [program.variables[place] for place in program.assigned] == [count]
    call = jax_export.deserialize(bytearray(program.data)).call
    outputs, (new,) = jax.jit(call)(values, [jnp.ones((2, 3))])
    np.testing.assert_array_equal(outputs[0], [[3.0, 4.0, 5.0]] * 2)
    assert (float(new), float(count)) == (3.0, 1.0)


def test_what_has_no_program_says_why() -> None:
    @stratagem.function(input_signature=[TensorSpec((None,))])
    def counted(x: Any) -> Any:
        return jnp.ones(int(x.shape[0]))

    with pytest.raises(InputError, match=r"counted cannot be written to a file for TensorSpec(?s:.*)give the sizes"):
        programs_for_file(counted)
