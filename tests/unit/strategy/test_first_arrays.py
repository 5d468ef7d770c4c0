"""Arrays that variables begin with: Keras's own numbers, without a program for each shape."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np
import pytest
from jax.extend.random import threefry_2x32

import stratagem
from stratagem.core.environment import XLA_AS_IS
from stratagem.strategy import first_arrays

pytestmark = pytest.mark.skipif(not first_arrays._SAME_BITS, reason="before JAX 0.10 arrays are left to JAX")

STRATEGY = stratagem.OneDeviceStrategy("cpu:0")

ROUND_A_BLOCK = [(), (0, 3), (7,), (3, 3, 1, 32), (65_535,), (65_536,), (65_537,), (300, 301)]

DRAWS: dict[str, tuple[Callable[..., Any], float, float]] = {
    "uniform": (keras.random.uniform, 0.0, 1.0),
    "uniform, small": (keras.random.uniform, -0.0123, 0.0123),
    "uniform, whole numbers": (keras.random.uniform, 2, 5),
    "normal": (keras.random.normal, 0.0, 1.0),
    "normal, small": (keras.random.normal, 0.3, 0.0517),
    "truncated": (keras.random.truncated_normal, 0.0, 1.0),
    "truncated, small": (keras.random.truncated_normal, -1, 0.0723),
}


def bits(array: Any) -> bytes:
    return np.asarray(array).tobytes()


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the arrays that were made of blocks."""
    sizes: list[int] = []
    original = first_arrays._blocks

    def counted(block: Any, key: Any, size: int, *numbers: Any) -> np.ndarray:
        sizes.append(size)
        return original(block, key, size, *numbers)

    monkeypatch.setattr(first_arrays, "_blocks", counted)
    return sizes


@pytest.mark.parametrize("shape", ROUND_A_BLOCK, ids=str)
@pytest.mark.parametrize("draw", DRAWS)
def test_numbers_are_those_of_keras(draw: str, shape: tuple[int, ...], blocks: list[int]) -> None:
    function, first, second = DRAWS[draw]
    want = function(shape, first, second, seed=1337)
    assert not blocks
    with STRATEGY.scope():
        mine = function(shape, first, second, seed=1337)
    assert blocks == [np.prod(shape, dtype=int)]
    assert (mine.shape, mine.dtype, bits(mine)) == (want.shape, want.dtype, bits(want))


COMPARED = """
import keras, numpy as np, stratagem
random, strategy, equal = keras.random, stratagem.OneDeviceStrategy("cpu:0"), []
for draw, first, second in [
    (random.uniform, -0.0123, 0.0123), (random.uniform, 2, 5),
    (random.normal, 0.3, 0.0517), (random.truncated_normal, -1.0, 0.0723),
]:
    for shape in [(7,), (3, 3, 1, 32), (300, 301)]:
        want = np.asarray(draw(shape, first, second, seed=1337))
        with strategy.scope():
            equal.append(np.asarray(draw(shape, first, second, seed=1337)).tobytes() == want.tobytes())
print(equal.count(True), "of", len(equal))
"""


@pytest.mark.thorough
@pytest.mark.usefixtures("as_users_do")
def test_numbers_are_those_of_keras_with_all_that_xla_does_for_speed() -> None:
    """XLA joins a product and a sum to one operation, with one rounding, if it does so in both programs."""
    done = subprocess.run([sys.executable, "-c", COMPARED], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout.strip()) == (0, "12 of 12"), done.stderr


@pytest.mark.parametrize(
    "initializer",
    [
        *("GlorotUniform", "GlorotNormal", "HeNormal", "LecunUniform", "Orthogonal", "RandomNormal"),
        *("RandomUniform", "TruncatedNormal", "VarianceScaling"),
    ],
)
def test_initializers_give_their_own_numbers(initializer: str, blocks: list[int]) -> None:
    def values() -> bytes:
        keras.utils.set_random_seed(3)
        return bits(getattr(keras.initializers, initializer)()((30, 40)))

    want = values()
    with STRATEGY.scope():
        assert values() == want
    assert len(blocks) == 1


def test_a_generator_of_seeds_goes_on_as_without_a_strategy(blocks: list[int]) -> None:
    def values() -> list[bytes]:
        seeds = keras.random.SeedGenerator(5)
        return [bits(keras.random.normal((9,), seed=seeds)) for _ in range(3)] + [bits(seeds.state.value)]

    want = values()
    with STRATEGY.scope():
        assert values() == want
    assert blocks == [9, 9, 9]


LEFT: dict[str, Callable[[], Any]] = {
    "short numbers": lambda: keras.random.uniform((5,), dtype="bfloat16", seed=1),
    "a deviation for each": lambda: keras.random.normal((2,), stddev=np.array([1.0, 2.0], "float32"), seed=1),
    "the global generator": lambda: keras.random.uniform((5,)),
    "in a program": lambda: jax.jit(lambda: keras.random.uniform((5,), seed=1))(),
    "a seed in a program": lambda: jax.jit(lambda key: keras.random.uniform((5,), seed=key))(jax.random.PRNGKey(1)),
    "a key that is bound to a device": lambda: keras.random.uniform(
        (5,), seed=jax.device_put(jax.random.PRNGKey(1), jax.devices()[1])
    ),
}


@pytest.mark.parametrize("draw", LEFT.values(), ids=LEFT)
def test_what_is_no_first_value_of_float32_is_left_to_jax(draw: Callable[[], Any], blocks: list[int]) -> None:
    keras.utils.set_random_seed(3)
    want = draw()
    keras.utils.set_random_seed(3)
    with STRATEGY.scope():
        mine = draw()
    assert not blocks
    assert (bits(mine), mine.devices()) == (bits(want), want.devices())


def test_other_generators_and_unchanged_programs_are_left_to_jax(
    blocks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw() -> bytes:
        return bits(keras.random.uniform((5,), seed=1))

    with jax.threefry_partitionable(False):
        want = draw()
        with STRATEGY.scope():
            assert draw() == want
    monkeypatch.setenv(XLA_AS_IS, "1")
    with STRATEGY.scope():
        draw()
    assert not blocks


@pytest.mark.parametrize(("seed", "error"), [("one", ValueError), (2**32, OverflowError)])
def test_a_wrong_seed_is_told_as_by_keras(seed: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as want:
        keras.random.uniform((5,), seed=seed)
    with STRATEGY.scope(), pytest.raises(error) as mine:
        keras.random.uniform((5,), seed=seed)
    assert str(mine.value) == str(want.value)


def test_numbers_behind_the_first_four_thousand_million_have_their_own_bits() -> None:
    key = np.array([3, 4], np.uint32)
    block = 5 * 2**16 + 9  # its first place is 5 * 2**32 + 9 * 2**16
    mine = jax.jit(lambda words: first_arrays._bits(words, 32, (4,)))(np.array([*key, block], np.uint32))
    counts = np.array([[5] * 4, 9 * 2**16 + np.arange(4)], np.uint32)
    high, low = np.asarray(threefry_2x32(key, counts))
    np.testing.assert_array_equal(np.asarray(mine), high ^ low)


@pytest.mark.parametrize("name", ["zeros", "ones"])
def test_arrays_of_equal_numbers(name: str, compiled: list[str]) -> None:
    with STRATEGY.scope():
        made = [getattr(keras.ops, name)(shape) for shape in [(), (0, 3), (41,), (43, 47)]]
        initial = getattr(keras.initializers, name.title())()((53,))
    assert not compiled
    fill = getattr(np, name)
    for array, shape in zip([*made, initial], [(), (0, 3), (41,), (43, 47), (53,)], strict=True):
        assert (array.dtype, bits(array)) == (np.float32, bits(fill(shape, np.float32)))
        assert (array.committed, array.weak_type) == (False, False)


def test_other_arrays_of_equal_numbers_are_left_to_jax() -> None:
    with STRATEGY.scope():
        assert keras.ops.zeros((3,), "int32").dtype == np.int32
        assert keras.ops.ones((3,), "bfloat16").dtype == jax.numpy.bfloat16
        inside = jax.jit(lambda size: keras.ops.ones(size.shape) + size)(np.zeros(3, "float32"))
    np.testing.assert_array_equal(np.asarray(inside), np.ones(3))


def test_sizes_may_be_numbers_of_numpy(blocks: list[int]) -> None:
    with STRATEGY.scope():
        assert keras.random.uniform((np.int64(3), 5), seed=1).shape == (3, 5)
    assert blocks == [15]


def test_what_is_no_dtype_is_told_as_by_keras() -> None:
    with pytest.raises(TypeError) as want:
        keras.ops.zeros((3,), "number")
    with STRATEGY.scope(), pytest.raises(TypeError) as mine:
        keras.ops.zeros((3,), "number")
    assert str(mine.value) == str(want.value)


def test_a_network_of_many_shapes_needs_one_program(compiled: list[str]) -> None:
    with STRATEGY.scope():
        layers = [keras.layers.Dense(size) for size in (11, 13, 17, 19, 23)]
        for layer, width in zip(layers, itertools.chain([29], (11, 13, 17, 19)), strict=True):
            layer.build((None, width))
    assert [name for name in compiled if "uniform" in name] in ([], ["jit(_uniform_block)"])
