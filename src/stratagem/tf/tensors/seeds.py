"""Seeds of random numbers: `tf.random.set_seed`, and the streams of draws that it seeds.

Draws advance a seed generator of Keras, so that a compiled function draws anew each time, and each replica its own.
Functions of datasets draw with NumPy.
"""

from __future__ import annotations

import collections
import random
import secrets
import threading
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from stratagem.mesh.variable_policies import Policy, enter
from stratagem.replica.context import current_replica_context

_generators: dict[int | None, keras.random.SeedGenerator] = {}
_host: dict[int | None, np.random.Generator] = {}
_starts: dict[int | None, int] = {}
_runs: collections.Counter[tuple[int | None, int]] = collections.Counter()
_lock = threading.Lock()
_seed: list[int | None] = [None]


def set_seed(seed: int | None) -> None:
    """Seed all random numbers: initial weights, dropout, `tf.random` (`tf.random.set_seed`).

    Python's `random` and NumPy's are seeded too, since Keras 3 draws the seeds of layers from them
    (`keras.utils.set_random_seed`).

    Args:
        seed: Any integer; None for numbers that cannot be predicted, as before the first call.
    """
    keras.utils.set_random_seed((secrets.randbits(32) if seed is None else int(seed)) % 2**32)
    _seed[0] = None if seed is None else int(seed)
    with _lock:
        _host.clear()
        _runs.clear()
    for own, generator in _generators.items():
        _starts[own] = _start(own)
        generator.state.assign([_starts[own], 0])


def _start(own: int | None) -> int:
    """Return where a stream starts: of the seed of the program, and of its own."""
    if _seed[0] is None:
        return _unasked() if own is None else own
    return int(np.random.SeedSequence([_seed[0] % 2**63, 0 if own is None else 1 + own]).generate_state(1)[0]) >> 1


def _unasked() -> int:
    """Return a start that follows Python's seed, and leaves its generator as it was: Keras draws seeds from it."""
    before = random.getstate()
    bits = random.getrandbits(63)
    random.setstate(before)
    return int(np.random.SeedSequence([bits, len(_generators)]).generate_state(1)[0]) >> 1


def drawing(seed: int | None = None) -> keras.random.SeedGenerator:
    """Return the generator of a stream of draws.

    Args:
        seed: Calls with the same seed draw from one stream; None for the stream of all others.
    """
    seed = _stream(seed)
    if seed not in _generators:
        _starts[seed] = _start(seed)
        _generators[seed] = keras.random.SeedGenerator(_starts[seed])
    return _generators[seed]


def _stream(seed: int | None) -> int | None:
    """Return which stream the calls with a seed draw from."""
    return None if seed is None else int(seed) % 2**31


def drawing_on_host(seed: int | None = None) -> tuple[np.random.Generator, Any]:
    """Return NumPy's generator of a stream of draws, and the lock to hold while drawing."""
    with _lock:
        if seed not in _host:
            _host[seed] = np.random.default_rng(_start(seed))
    return _host[seed], _lock


def next_run(seed: int | None, draw: int) -> np.ndarray:
    """Return two words for one draw of a compiled step; others each time that the step runs.

    JAX calls it from threads of its own: it must not look at Python's random state, which the program uses meanwhile.

    Args:
        seed: The seed of a stream that has been drawn from (`drawing`); None for the stream without a seed.
        draw: Which draw of the step it is.
    """
    seed = _stream(seed)
    with _lock:
        run = _runs[seed, draw]
        _runs[seed, draw] += 1
    return np.random.SeedSequence([_starts[seed], draw, run]).generate_state(2)


class SeedsOfOneCall:
    """A generator of seeds that is made in a compiled function: its state is a value of the call, and no variable.

    Args:
        seed: The seed; each replica draws its own numbers.
    """

    def __init__(self, seed: Any) -> None:
        self.dtype = np.dtype("uint32")
        self.value = jnp.stack([jnp.asarray(seed, self.dtype), jnp.zeros((), self.dtype)])
        context = current_replica_context()
        if context is not None and context.strategy.mesh.size > 1:
            (self.value,) = enter([Policy.SEED], [self.value])

    @property
    def state(self) -> Any:
        """What holds the position: this."""
        return self

    def assign(self, value: Any) -> Any:
        """Go to a position."""
        self.value = jnp.asarray(value, self.dtype)
        return self.value

    def next(self) -> jax.Array:
        """Return the position, and go on."""
        position, self.value = self.value, self.value + jnp.asarray([0, 1], self.dtype)
        return position
