"""Random tensors: `tf.random.normal`, `tf.random.uniform`, `tf.random.shuffle`, `tf.random.Generator`.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/random
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.experimental import io_callback

from stratagem.checkpoint.objects import Holder
from stratagem.core.errors import InputError
from stratagem.core.made_here import note
from stratagem.data.transforms import in_element_function
from stratagem.program.discover import note_stateful
from stratagem.program.tracing import current_tracing
from stratagem.tf.dtypes import as_dtype
from stratagem.tf.tensors.compat import lost_draw
from stratagem.tf.tensors.marks import Sizes
from stratagem.tf.tensors.operation import held, hosted, integers, on_host, operation, tensor
from stratagem.tf.tensors.seeds import SeedsOfOneCall, drawing, drawing_on_host, next_run

Draw = Callable[[Any], Any]


def _drawn(seed: int | None, host: Callable[[np.random.Generator], Any], key: Draw) -> Any:
    if in_element_function():
        generator, lock = drawing_on_host(seed)
        with lock:
            return hosted(host(generator))
    return key(_next_key(seed))


def _is_known(size: Sequence[Any]) -> bool:
    """Whether a shape is known. It is not while Keras asks a layer for its output shape for a batch of any size."""
    return all(isinstance(each, int | np.integer) for each in size)


def _next_key(seed: int | None) -> jax.Array:
    """Return the next key of a stream.

    A step that Keras compiles carries the generators of the model's layers alone: there each run asks Python for a key.
    """
    generator = drawing(seed)
    draw = lost_draw(generator)
    if draw is not None:
        words = io_callback(functools.partial(next_run, seed, draw), jax.ShapeDtypeStruct((2,), jnp.uint32))
        return jax.random.fold_in(jax.random.key(words[0]), words[1])
    return _key_of(generator)


def _key_of(generator: keras.random.SeedGenerator | SeedsOfOneCall) -> jax.Array:
    """Return the next key of a generator."""
    state = jnp.asarray(generator.next())
    return jax.random.fold_in(jax.random.key(state[0].astype(jnp.uint32)), state[1].astype(jnp.uint32))


def _normal(key: jax.Array, shape: Any, mean: Any, stddev: Any, dtype: Any) -> jax.Array:
    size, kind = integers(shape), held(dtype)
    return (jax.random.normal(key, size, kind) if _is_known(size) else jnp.zeros(size, kind)) * stddev + mean


def _truncated_normal(key: jax.Array, shape: Any, mean: Any, stddev: Any, dtype: Any) -> jax.Array:
    return jax.random.truncated_normal(key, -2.0, 2.0, integers(shape), held(dtype)) * stddev + mean


def _uniform(key: jax.Array, shape: Any, minval: Any, maxval: Any, dtype: Any) -> jax.Array:
    size, kind = integers(shape), held(dtype)
    if as_dtype(dtype).is_integer:
        return jax.random.randint(key, size, minval, maxval, kind)
    return jax.random.uniform(key, size, kind) * ((1 if maxval is None else maxval) - minval) + minval


def _categorical(key: jax.Array, logits: Any, num_samples: Any) -> jax.Array:
    x = jnp.asarray(tensor(logits))
    return jax.random.categorical(key, x[:, None, :], shape=(x.shape[0], int(num_samples)))


@operation
def normal(shape: Sizes, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32", seed: int | None = None) -> Any:
    """Return draws of a normal distribution (`tf.random.normal`).

    Args:
        shape: The shape.
        mean: The mean.
        stddev: The standard deviation.
        dtype: The dtype.
        seed: Calls with the same seed share a separate stream of draws; see `tf.random.set_seed`.
    """
    kind = held(dtype)
    return _drawn(
        seed,
        lambda g: g.standard_normal(shape).astype(kind) * kind.type(stddev) + kind.type(mean),
        lambda key: _normal(key, shape, mean, stddev, dtype),
    )


@operation
def truncated_normal(
    shape: Sizes, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32", seed: int | None = None
) -> Any:
    """Return draws of a normal distribution within two standard deviations (`tf.random.truncated_normal`)."""
    return tensor(drawing_key(seed, lambda key: _truncated_normal(key, shape, mean, stddev, dtype)))


def drawing_key(seed: int | None, draw: Draw) -> Any:
    """Return a draw with the next key of a stream; in functions of datasets as NumPy."""
    if not in_element_function():
        return draw(_next_key(seed))
    generator, lock = drawing_on_host(seed)
    with lock:
        own = int(generator.integers(2**31))
    return hosted(np.asarray(draw(jax.random.key(own))))


@operation
def uniform(shape: Sizes, minval: Any = 0, maxval: Any = None, dtype: Any = "float32", seed: int | None = None) -> Any:
    """Return draws from `minval` to `maxval`, which is not drawn (`tf.random.uniform`).

    Args:
        shape: The shape.
        minval: The least number.
        maxval: The end, which is not drawn; None for 1. Whole numbers need it.
        dtype: The dtype: floating-point or integer.
        seed: As for `normal`.

    Raises:
        InputError: Whole numbers are asked for without `maxval`.
    """
    kind = held(dtype)
    is_integer = as_dtype(dtype).is_integer
    if is_integer and maxval is None:
        raise InputError(f"random.uniform was asked for {as_dtype(dtype)!r} without maxval.", "Give maxval.")
    end = 1 if maxval is None else maxval

    def on_numpy(generator: np.random.Generator) -> Any:
        if is_integer:
            return generator.integers(minval, end, shape, dtype=np.int64).astype(kind)
        return generator.random(shape, np.float32).astype(kind) * kind.type(end - minval) + kind.type(minval)

    return _drawn(seed, on_numpy, lambda key: _uniform(key, shape, minval, end, dtype))


def shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Any:
    """Return a tensor's rows in random order (`tf.random.shuffle`)."""
    x = tensor(value)
    if on_host(x):
        return _drawn(seed, lambda g: g.permutation(x), lambda key: x)
    return jax.random.permutation(_next_key(seed), jnp.asarray(x))


@operation
def categorical(logits: Any, num_samples: Any, dtype: Any = None, seed: int | None = None) -> Any:
    """Return draws of classes (`tf.random.categorical`).

    Args:
        logits: A tensor of shape (rows, classes), not normalised.
        num_samples: The number of draws for each row.
        dtype: The dtype; None for int64, which JAX holds as int32.
        seed: As for `normal`.

    Returns:
        Shape (rows, num_samples).
    """
    return drawing_key(seed, lambda key: _categorical(key, logits, num_samples)).astype(held(dtype or "int64"))


@operation
def gamma(shape: Any, alpha: Any, beta: Any = None, dtype: Any = "float32", seed: int | None = None) -> Any:
    """Return draws of gamma distributions, in the given shape for each `alpha` (`tf.random.gamma`)."""
    a, kind = jnp.asarray(alpha), held(dtype)
    size = (*integers(shape), *a.shape)
    scale = 1.0 if beta is None else jnp.asarray(beta)
    return drawing_key(seed, lambda key: jax.random.gamma(key, a, size, kind) / scale)


def poisson(shape: Any, lam: Any, dtype: Any = "float32", seed: int | None = None, name: str | None = None) -> Any:
    """Return draws of Poisson distributions, in the given shape for each `lam` (`tf.random.poisson`)."""
    rate = jnp.asarray(lam)
    size = (*integers(shape), *rate.shape)
    return drawing_key(seed, lambda key: jax.random.poisson(key, rate, size).astype(held(dtype)))


def _stateless_key(seed: Any) -> jax.Array:
    first, second = jnp.asarray(tensor(seed)).astype(jnp.uint32).reshape(2)
    return jax.random.fold_in(jax.random.key(first), second)


def _stateless(draw: Draw, seed: Any) -> Any:
    result = draw(_stateless_key(seed))
    return hosted(np.asarray(result)) if in_element_function() else result


def stateless_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = "float32",
    name: str | None = None,
    alg: str = "auto_select",
) -> Any:
    """Return draws of a normal distribution, the same for a seed of two numbers (`tf.random.stateless_normal`)."""
    return _stateless(lambda key: _normal(key, shape, mean, stddev, dtype), seed)


def stateless_truncated_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = "float32",
    name: str | None = None,
    alg: str = "auto_select",
) -> Any:
    """Return `truncated_normal` draws, the same for a seed of two numbers (`tf.random.stateless_truncated_normal`)."""
    return _stateless(lambda key: _truncated_normal(key, shape, mean, stddev, dtype), seed)


def stateless_uniform(
    shape: Any,
    seed: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = "float32",
    name: str | None = None,
    alg: str = "auto_select",
) -> Any:
    """Return draws from `minval` to `maxval`, the same for a seed of two numbers (`tf.random.stateless_uniform`)."""
    return _stateless(lambda key: _uniform(key, shape, minval, maxval, dtype), seed)


def stateless_categorical(
    logits: Any, num_samples: Any, seed: Any, dtype: Any = "int64", name: str | None = None
) -> Any:
    """Return draws of classes, the same for a seed of two numbers (`tf.random.stateless_categorical`)."""
    return _stateless(lambda key: _categorical(key, logits, num_samples), seed).astype(held(dtype))


def stateless_shuffle(value: Any, seed: Any, alg: str = "auto_select", name: str | None = None) -> Any:
    """Return a tensor's rows in an order that a seed of two numbers gives (`stateless_shuffle`)."""
    return _stateless(lambda key: jax.random.permutation(key, jnp.asarray(tensor(value))), seed)


def stateless_split(seed: Any, num: int = 2, alg: str = "auto_select") -> Any:
    """Return seeds derived from one seed (`tf.random.split`), of shape (num, 2)."""
    return _stateless(lambda key: jax.random.randint(key, (num, 2), 0, 2**31 - 1), seed)


def stateless_fold_in(seed: Any, data: Any, alg: str = "auto_select") -> Any:
    """Return a seed derived from a seed and a number (`tf.random.fold_in`)."""
    return _stateless(lambda key: jax.random.randint(jax.random.fold_in(key, data), (2,), 0, 2**31 - 1), seed)


def _kept_by_program(made: weakref.ref[Generator], seed: int) -> bool:
    """Give a generator that a compiled function made, and the program keeps, a state that lasts.

    A program writes `if g is None: g = tf.random.Generator.from_seed(1)`.

    Args:
        made: The generator.
        seed: Its seed.
    """
    generator = made()
    if generator is None:
        return False
    generator.keep_state(seed)
    return True


class Generator(Holder):
    """A stream of draws with its own state (`tf.random.Generator`).

    In a compiled function the stream continues from call to call. Inside `strategy.run` each replica draws its own
    numbers. A generator that is made in a compiled function starts again at each call.

    Args:
        generator: The seed generator that it draws from.

    Example:
        >>> first, again = Generator.from_seed(1).normal([2]), Generator.from_seed(1).normal([2])
        >>> bool((first == again).all())
        True
    """

    def __init__(self, generator: keras.random.SeedGenerator | SeedsOfOneCall) -> None:
        self._generator = generator

    @classmethod
    def from_seed(cls, seed: int, alg: Any = None) -> Generator:
        """Return the stream of a seed."""
        if current_tracing() is None:
            own = keras.random.SeedGenerator(int(seed) % 2**31)
            note(own.state)
            return cls(own)
        made = cls(SeedsOfOneCall(seed & (2**31 - 1)))
        if not isinstance(seed, jax.Array):
            note_stateful(functools.partial(_kept_by_program, weakref.ref(made), int(seed)))
        return made

    @classmethod
    def from_non_deterministic_state(cls, alg: Any = None) -> Generator:
        """Return a stream with a random seed."""
        return cls(keras.random.SeedGenerator(int(np.random.SeedSequence().generate_state(1)[0]) % 2**31))

    def keep_state(self, seed: int) -> None:
        """Start the stream of a seed in a separate variable."""
        self._generator = keras.random.SeedGenerator(seed % 2**31)
        note(self._generator.state)

    def checkpoint_parts(self) -> dict[str, Any]:
        """Return what a checkpoint saves: the position of the stream."""
        return {"state": self.state}

    @property
    def state(self) -> Any:
        """The variable that holds the position of the stream."""
        return self._generator.state

    def reset_from_seed(self, seed: int) -> None:
        """Start the stream of a seed."""
        self._generator.state.assign([int(seed) % 2**31, 0])

    def make_seeds(self, count: int = 1) -> Any:
        """Return seeds for stateless functions, of shape (2, count)."""
        return jax.random.randint(_key_of(self._generator), (2, int(count)), 0, 2**31 - 1)

    def split(self, count: int = 1) -> list[Generator]:
        """Return further streams."""
        return [Generator.from_seed(seed) for seed in self.make_seeds(count)[0]]

    def normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32", name: str | None = None
    ) -> Any:
        """Return draws of a normal distribution."""
        return _normal(_key_of(self._generator), shape, mean, stddev, dtype)

    def truncated_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32", name: str | None = None
    ) -> Any:
        """Return draws of a normal distribution within two standard deviations."""
        return _truncated_normal(_key_of(self._generator), shape, mean, stddev, dtype)

    def uniform(
        self, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = "float32", name: str | None = None
    ) -> Any:
        """Return draws from `minval` to `maxval`, which is not drawn."""
        return _uniform(_key_of(self._generator), shape, minval, maxval, dtype)

    def uniform_full_int(self, shape: Any, dtype: Any = "uint32", name: str | None = None) -> Any:
        """Return draws of all numbers that an integer dtype has."""
        return jax.random.bits(_key_of(self._generator), integers(shape), "uint32").astype(held(dtype))

    def binomial(self, shape: Any, counts: Any, probs: Any, dtype: Any = "int32", name: str | None = None) -> Any:
        """Return numbers of successes in `counts` trials, each with probability `probs`."""
        drawn = jax.random.binomial(_key_of(self._generator), tensor(counts), tensor(probs), integers(shape))
        return drawn.astype(held(dtype))

    def skip(self, delta: Any) -> Any:
        """Skip the numbers of the next `delta` draws, and return the position."""
        return self.state.assign_add(jnp.asarray([0, delta], self.state.dtype))

    def reset(self, state: Any) -> None:
        """Go to a position that `state` had."""
        self.state.assign(tensor(state))


_global: list[Generator] = []


def get_global_generator() -> Generator:
    """Return the global stream (`tf.random.get_global_generator`)."""
    return _global[0] if _global else Generator(drawing())


def set_global_generator(generator: Generator) -> None:
    """Make this the global stream (`tf.random.set_global_generator`)."""
    _global[:] = [generator]
