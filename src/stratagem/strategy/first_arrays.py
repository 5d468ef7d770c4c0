"""Arrays that variables begin with, without a program for each shape: drawn at random, zeros and ones.

Keras's initializers call JAX, which compiles a program for each shape. On one core each takes XLA:CPU 0.5 to 2.2 s if
numbers are drawn, and 0.03 to 0.1 for zeros: ResNet-50 is made in 20 s, and in 0.6 with what is here. JAX's generator
gives the number at a place of an array whatever the shape is, so an array can be made of blocks of one size, with the
same bits.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax import lax
from jax.extend.random import define_prng_impl

from stratagem.core import patches
from stratagem.core.environment import XLA_AS_IS
from stratagem.program.compat import is_tracing
from stratagem.program.rules.random_bits import are_of_places, bits_at

_BLOCK: Final = 2**16
"""Numbers of one call of the program: 0.3 ms on one core."""

_SAME_BITS: Final = jax.__version_info__ >= (0, 10)
"""Whether XLA gives a number the same bits in arrays of all sizes. With JAX 0.7.2 three of 90,300 normal numbers differ
in the last one; with 0.10.2 and 0.12 none of 160 arrays has any."""

_PARAMETERS: Final = (
    ("shape", "minval", "maxval", "dtype", "seed"),
    ("shape", "mean", "stddev", "dtype", "seed"),
)
"""Parameters of the functions of Keras's backend; another release's that has others stays as it is."""


def install() -> None:
    """Replace what `core.patches` lists. A second call does nothing."""
    patches.install(
        __name__,
        {
            "random.uniform": functools.partial(_in_blocks, _uniform),
            "random.normal": functools.partial(_in_blocks, _normal),
            "random.truncated_normal": functools.partial(_in_blocks, _truncated_normal),
            "numpy.zeros": functools.partial(_filled, np.zeros),
            "numpy.ones": functools.partial(_filled, np.ones),
        },
    )


_Draw = Callable[[np.ndarray, int, float, float], np.ndarray]
"""Function of (two words of a key, how many numbers, two numbers that say how they are distributed)."""


def _in_blocks(draw: _Draw, original: Callable[..., Any]) -> Callable[..., Any] | None:
    """Wrap a function of Keras's backend that draws numbers."""
    signature = inspect.signature(original)
    if tuple(signature.parameters) not in _PARAMETERS:
        return None

    @functools.wraps(original)
    def drawn(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        shape, first, second, dtype, seed = given.arguments.values()
        if not (_is_quick() and _is_of_places() and _are_known(shape, first, second) and _is_single(dtype)):
            return original(*args, **kwargs)
        if isinstance(seed, keras.random.SeedGenerator):
            seed = seed.next()
        key = _words(seed)
        if key is None:
            return original(shape, first, second, dtype, seed)
        return jax.device_put(draw(key, math.prod(shape), first, second).reshape(shape))

    return drawn


def _filled(fill: Callable[..., np.ndarray], original: Callable[..., Any]) -> Callable[..., Any] | None:
    """Wrap a function of Keras's backend that makes an array of equal numbers."""
    if tuple(inspect.signature(original).parameters) != ("shape", "dtype"):
        return None

    @functools.wraps(original)
    def filled(shape: Any, dtype: Any = None) -> Any:
        if not (_is_quick() and _are_known(shape) and _is_single(dtype)):
            return original(shape, dtype)
        return jax.device_put(fill(shape, np.float32))

    return filled


def _is_quick() -> bool:
    """Whether arrays are made now, not in a program that is being traced, and by XLA:CPU."""
    is_wanted = _SAME_BITS and os.environ.get(XLA_AS_IS) != "1"
    return is_wanted and not is_tracing() and jax.default_backend() == "cpu"


def _is_of_places() -> bool:
    """Whether keys are those of JAX's own generator, and a number depends on its place in the array alone."""
    generator = jax.config.jax_default_prng_impl  # pyright: ignore[reportAttributeAccessIssue]
    return generator == "threefry2x32" and are_of_places()


def _are_known(shape: Any, *numbers: Any) -> bool:
    """Whether a shape and numbers are plain ones of Python."""
    return (
        isinstance(shape, Sequence)
        and all(isinstance(size, int | np.integer) and size >= 0 for size in shape)
        and all(type(number) in (int, float) for number in numbers)
    )


def _is_single(dtype: Any) -> bool:
    return (dtype or keras.config.floatx()) == "float32"  # what is no dtype is refused by Keras, in its own words


def _words(seed: Any) -> np.ndarray | None:
    """Return the two words of the key that a seed stands for; None if it is no number and no key of this process's."""
    if type(seed) is int:
        return np.array([seed, 0], np.uint32) if 0 <= seed < 2**32 else None
    is_key = isinstance(seed, jax.Array) and seed.shape == (2,) and seed.dtype == jnp.uint32
    return np.asarray(seed) if is_key and not seed.committed else None


def _uniform(key: np.ndarray, size: int, low: float, high: float) -> np.ndarray:
    return _blocks(_uniform_block, key, size, np.float32(low), np.float32(high))


def _normal(key: np.ndarray, size: int, mean: float, deviation: float) -> np.ndarray:
    return _scaled(_blocks(_normal_block, key, size), mean, deviation)


def _truncated_normal(key: np.ndarray, size: int, mean: float, deviation: float) -> np.ndarray:
    return _scaled(_blocks(_truncated_block, key, size, np.float32(-2), np.float32(2)), mean, deviation)


def _scaled(numbers: np.ndarray, mean: float, deviation: float) -> np.ndarray:
    """Multiply and add in place, each rounded, as Keras's two operations do."""
    numbers *= np.float32(deviation)
    numbers += np.float32(mean)
    return numbers


def _blocks(block: Callable[..., jax.Array], key: np.ndarray, size: int, *numbers: np.float32) -> np.ndarray:
    """Return numbers, made of blocks.

    Args:
        block: Compiled function of (key and index of the block, *numbers).
        key: The two words of the key.
        size: How many.
        numbers: What else `block` gets.
    """
    made = np.empty(size, np.float32)
    for start in range(0, size, _BLOCK):
        part = made[start : start + _BLOCK]
        part[:] = np.asarray(block(np.array([*key, start // _BLOCK], np.uint32), *numbers))[: part.size]
    return made


def _bits(key: jax.Array, width: int, shape: Sequence[int]) -> jax.Array:
    """Return the bits of a block for a key of three words: two of JAX's key, and the index of the block."""
    index = key[2]
    within = lax.iota(jnp.uint32, math.prod(shape))
    high = jnp.full_like(within, lax.shift_right_logical(index, jnp.uint32(32 - _BLOCK.bit_length() + 1)))
    low = within + index * jnp.uint32(_BLOCK)
    return bits_at(key[0], key[1], high, low, width).reshape(shape)


def _makes_no_keys(*_: Any) -> NoReturn:
    raise TypeError("The key of a block gives bits, and no other keys.")


_OF_BLOCK: Final = define_prng_impl(
    key_shape=(3,),
    seed=_makes_no_keys,
    split=_makes_no_keys,
    fold_in=_makes_no_keys,
    random_bits=_bits,
    name="threefry_block",
    tag="block",
)
"""JAX's generator at the places of one block."""


def _key(words: jax.Array) -> jax.Array:
    return jax.random.wrap_key_data(words, impl=_OF_BLOCK)


@jax.jit
def _uniform_block(words: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    return jax.random.uniform(_key(words), (_BLOCK,), jnp.float32, low, high)


@jax.jit
def _normal_block(words: jax.Array) -> jax.Array:
    return jax.random.normal(_key(words), (_BLOCK,), jnp.float32)


@jax.jit
def _truncated_block(words: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    return jax.random.truncated_normal(_key(words), low, high, (_BLOCK,), jnp.float32)
