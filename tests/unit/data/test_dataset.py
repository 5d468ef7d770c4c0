"""The operations against results written by hand, tf.data's cardinalities, and every message about a bad argument.

Run with `tensorflow` in place of `stratagem.data` (2.21), the table of elements and cardinalities holds as well, except
for the rows that TensorFlow cannot trace or wants a signature for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stratagem.core.errors import InputError, UsageError
from stratagem.data import AUTOTUNE, Dataset, TensorSpec, experimental

INFINITE, UNKNOWN = -1, -2


def numbers(dataset: Dataset, limit: int = 50) -> list[Any]:
    return [
        element.tolist() if isinstance(element, np.ndarray | np.generic) else element
        for element in itertools.islice(dataset.as_numpy_iterator(), limit)
    ]


def r(*args: int) -> Dataset:
    return Dataset.range(*args)


def countdown() -> Any:
    yield from (3, 2, 1)


SEMANTICS: list[tuple[str, Callable[[], Dataset], list[Any], int]] = [
    ("range", lambda: r(3), [0, 1, 2], 3),
    ("range from", lambda: r(2, 5), [2, 3, 4], 3),
    ("range down", lambda: r(5, 0, -2), [5, 3, 1], 3),
    ("range empty", lambda: r(0), [], 0),
    ("slices", lambda: Dataset.from_tensor_slices([4, 5, 6]), [4, 5, 6], 3),
    ("tensors", lambda: Dataset.from_tensors([4, 5, 6]), [[4, 5, 6]], 1),
    ("generator", lambda: Dataset.from_generator(countdown), [3, 2, 1], UNKNOWN),
    ("generator twice", lambda: Dataset.from_generator(countdown).repeat(2), [3, 2, 1, 3, 2, 1], UNKNOWN),
    ("generator args", lambda: Dataset.from_generator(lambda n: iter(range(n)), args=(2,)), [0, 1], UNKNOWN),
    ("zip", lambda: Dataset.zip((r(3), r(10, 20))), [(0, 10), (1, 11), (2, 12)], 3),
    ("zip of arguments", lambda: Dataset.zip(r(1), r(10, 20)), [(0, 10)], 1),
    ("zip nested", lambda: Dataset.zip((r(2), {"a": r(5, 9)})), [(0, {"a": 5}), (1, {"a": 6})], 2),
    ("zip with repeat", lambda: Dataset.zip((r(3), r(2).repeat())), [(0, 0), (1, 1), (2, 0)], 3),
    ("zip unknown", lambda: Dataset.zip((r(3), r(3).filter(lambda x: x > 0))), [(0, 1), (1, 2)], UNKNOWN),
    ("concatenate", lambda: r(2).concatenate(r(7, 9)), [0, 1, 7, 8], 4),
    ("concatenate for ever", lambda: r(2).concatenate(r(1).repeat()).take(4), [0, 1, 0, 0], 4),
    ("map", lambda: r(3).map(lambda x: x * x), [0, 1, 4], 3),
    ("map of tuple", lambda: Dataset.zip(r(2), r(5, 7)).map(lambda a, b: a + b), [5, 7], 2),
    ("map of dict", lambda: Dataset.from_tensor_slices({"a": [1, 2]}).map(lambda d: d["a"] + 1), [2, 3], 2),
    ("map after batch", lambda: r(4).batch(2).map(lambda x: x.sum()), [1, 5], 2),
    ("map to list", lambda: r(2).map(lambda x: [x, x + 1]), [(0, 1), (1, 2)], 2),
    ("filter", lambda: r(6).filter(lambda x: x % 2 == 1), [1, 3, 5], UNKNOWN),
    ("filter none", lambda: r(6).filter(lambda x: False).repeat(), [], INFINITE),
    ("filter batches", lambda: r(5).batch(2).filter(lambda x: x.sum() > 1), [[2, 3], [4]], UNKNOWN),
    ("repeat", lambda: r(2).repeat(3), [0, 1, 0, 1, 0, 1], 6),
    ("repeat 0", lambda: r(2).repeat(0), [], 0),
    ("repeat for ever", lambda: r(2).repeat().take(5), [0, 1, 0, 1, 0], 5),
    ("repeat -1", lambda: r(2).repeat(-1).take(3), [0, 1, 0], 3),
    ("repeat of nothing", lambda: r(0).repeat(), [], 0),
    ("repeat of repeat", lambda: r(1).repeat(2).repeat(2), [0, 0, 0, 0], 4),
    ("batch", lambda: r(5).batch(2), [[0, 1], [2, 3], [4]], 3),
    ("batch drop", lambda: r(5).batch(2, drop_remainder=True), [[0, 1], [2, 3]], 2),
    ("batch in parallel", lambda: r(3).batch(2, num_parallel_calls=AUTOTUNE, deterministic=False), [[0, 1], [2]], 2),
    ("batch drop exact", lambda: r(4).batch(2, True), [[0, 1], [2, 3]], 2),
    ("batch too big", lambda: r(2).batch(9), [[0, 1]], 1),
    ("batch too big drop", lambda: r(2).batch(9, True), [], 0),
    ("batch of batches", lambda: r(8).batch(2).batch(2), [[[0, 1], [2, 3]], [[4, 5], [6, 7]]], 2),
    ("batch over repeat", lambda: r(3).repeat(2).batch(4), [[0, 1, 2, 0], [1, 2]], 2),
    ("repeat over batch", lambda: r(3).batch(2).repeat(2), [[0, 1], [2], [0, 1], [2]], 4),
    ("batch for ever", lambda: r(3).repeat().batch(2).take(2), [[0, 1], [2, 0]], 2),
    ("unbatch", lambda: r(5).batch(2).unbatch(), [0, 1, 2, 3, 4], UNKNOWN),
    ("unbatch drop", lambda: r(5).batch(2, True).unbatch(), [0, 1, 2, 3], 4),
    ("unbatch array", lambda: Dataset.from_tensors([7, 8]).unbatch(), [7, 8], 2),
    ("unbatch ragged", lambda: r(3).map(lambda n: np.arange(n)).unbatch(), [0, 0, 1], UNKNOWN),
    ("unbatch rebatch", lambda: r(5).batch(3).unbatch().batch(2), [[0, 1], [2, 3], [4]], UNKNOWN),
    ("take", lambda: r(5).take(2), [0, 1], 2),
    ("take more", lambda: r(2).take(5), [0, 1], 2),
    ("take all", lambda: r(2).take(-1), [0, 1], 2),
    ("take none", lambda: r(2).take(0), [], 0),
    ("skip", lambda: r(5).skip(3), [3, 4], 2),
    ("skip more", lambda: r(2).skip(5), [], 0),
    ("skip all", lambda: r(2).skip(-1), [], 0),
    ("skip into repeat", lambda: r(3).repeat(3).skip(7), [1, 2], 2),
    ("skip batches", lambda: r(7).batch(2).skip(2), [[4, 5], [6]], 2),
    ("skip then take", lambda: r(9).skip(2).take(3), [2, 3, 4], 3),
    ("shard", lambda: r(7).shard(3, 1), [1, 4], 2),
    ("shard first", lambda: r(7).shard(3, 0), [0, 3, 6], 3),
    ("shard too many", lambda: r(2).shard(5, 4), [], 0),
    ("shard batches", lambda: r(7).batch(2).shard(2, 1), [[2, 3], [6]], 2),
    ("shard skip", lambda: r(20).shard(3, 2).skip(2), [8, 11, 14, 17], 4),
    ("enumerate", lambda: r(7, 9).enumerate(), [(0, 7), (1, 8)], 2),
    ("enumerate from", lambda: r(7, 9).enumerate(start=5), [(5, 7), (6, 8)], 2),
    ("enumerate skip", lambda: r(7, 10).enumerate().skip(2), [(2, 9)], 1),
    ("cache", lambda: r(3).cache().repeat(2), [0, 1, 2, 0, 1, 2], 6),
    ("cache empty", lambda: r(0).cache().repeat(2), [], 0),
    ("prefetch", lambda: r(2).prefetch(AUTOTUNE), [0, 1], 2),
    ("prefetch 0", lambda: r(2).prefetch(0), [0, 1], 2),
    ("concatenate skip", lambda: r(3).concatenate(r(5, 8)).skip(4), [6, 7], 2),
    ("zip skip", lambda: Dataset.zip(r(5), r(10, 14)).skip(3), [(3, 13)], 1),
]


@pytest.mark.parametrize(("build", "expected"), [pytest.param(b, e, id=name) for name, b, e, _ in SEMANTICS])
def test_elements(build: Callable[[], Dataset], expected: list[Any]) -> None:
    dataset = build()
    assert numbers(dataset) == expected
    assert numbers(dataset) == expected, "a second pass reads the same"


@pytest.mark.parametrize(("build", "expected"), [pytest.param(b, c, id=name) for name, b, _, c in SEMANTICS])
def test_cardinality(build: Callable[[], Dataset], expected: int) -> None:
    cardinality = build().cardinality()
    assert cardinality == expected
    assert cardinality.numpy() == np.int64(expected)


@pytest.mark.parametrize(("build", "expected"), [pytest.param(b, e, id=name) for name, b, e, _ in SEMANTICS])
def test_skip_is_the_same_as_reading_and_dropping(build: Callable[[], Dataset], expected: list[Any]) -> None:
    for count in range(len(expected) + 2):
        assert numbers(build().skip(count)) == expected[count:]


@pytest.mark.parametrize(
    ("build", "cardinality"),
    [
        (lambda: r(2).repeat(), INFINITE),
        (lambda: r(2).repeat().batch(3), INFINITE),
        (lambda: r(2).repeat().take(3), 3),
        (lambda: r(2).repeat().skip(3), INFINITE),
        (lambda: r(2).repeat().shard(2, 0), INFINITE),
        (lambda: r(2).concatenate(r(2).repeat()), INFINITE),
        (lambda: Dataset.zip(r(2).repeat(), r(3).repeat()), INFINITE),
        (lambda: r(2).filter(bool).take(3), UNKNOWN),
        (lambda: r(2).filter(bool).repeat(3), UNKNOWN),
        (lambda: r(2).filter(bool).batch(3), UNKNOWN),
        (lambda: r(9).shuffle(3), 9),
    ],
)
def test_cardinality_without_reading(build: Callable[[], Dataset], cardinality: int) -> None:
    assert build().cardinality() == cardinality
    assert experimental.cardinality(build()) == cardinality


def test_batches_of_two_sizes_have_no_size_in_common() -> None:
    """Found by random pipelines: 8 rows were claimed, by the size of the first dataset's batches; 10 come."""
    both = r(4).batch(2, drop_remainder=True).concatenate(r(6).batch(3, drop_remainder=True))
    assert both.element_spec == TensorSpec((None,), "int64")
    assert both.unbatch().cardinality() == UNKNOWN
    assert len(numbers(both.unbatch())) == 10
    alike = r(4).batch(2, drop_remainder=True).concatenate(r(6).batch(2, drop_remainder=True))
    assert (alike.element_spec, alike.unbatch().cardinality()) == (TensorSpec((2,), "int64"), 10)


def test_concatenated_elements_that_are_built_differently() -> None:
    both = r(2).concatenate(Dataset.from_tensor_slices({"a": [1], "b": [2]}))
    with pytest.raises(InputError, match=r"built differently: element and \['a'\], \['b'\]\.\n  What to do"):
        _ = both.element_spec


def test_cardinality_needs_no_generator_that_yields() -> None:
    """Found by random pipelines: skipping asked for the shape of an element, of which an empty generator has none."""
    empty = Dataset.from_generator(lambda: iter([]))
    rebatched = empty.concatenate(r(16)).repeat().take(30).batch(2).unbatch()
    assert rebatched.cardinality() == UNKNOWN
    assert numbers(rebatched.skip(28)) == [12, 13]


def test_len() -> None:
    assert len(r(10).batch(3)) == 4
    with pytest.raises(TypeError, match=r"no end\.\n  Why it matters: len.*\n  What to do: Use dataset\.cardinality"):
        len(r(1).repeat())
    with pytest.raises(InputError, match="known only after reading"):
        len(r(1).filter(bool))
    assert bool(r(0))
    assert len(list(r(3).filter(lambda x: x > 0))) == 2, "list() asks for the length and must not fail"


def test_structures_of_elements() -> None:
    x = np.arange(6, dtype=np.uint8).reshape(3, 2)
    element = next(iter(Dataset.from_tensor_slices(({"image": x, "weight": [0.5, 1.5, 2.5]}, [7, 8, 9], None))))
    assert element[0]["image"].tolist() == [0, 1]
    assert element[0]["image"].dtype == np.uint8
    assert element[0]["weight"].dtype == np.float32, "Python floats become float32, as in TensorFlow"
    assert element[1].dtype == np.int32
    assert element[2] is None
    batch = next(iter(Dataset.from_tensor_slices(({"image": x}, [7, 8, 9], None)).batch(2)))
    assert batch[0]["image"].shape == (2, 2)
    assert batch[2] is None


def test_eager_values() -> None:
    x, y = next(iter(Dataset.from_tensor_slices((np.ones((2, 3), np.float32), [4, 5]))))
    assert type(x.numpy()) is np.ndarray
    assert type(y.numpy()) is np.int32
    assert type((x + 1).numpy()) is np.ndarray
    assert type(y + 1) is np.int32
    assert f"{y:03d} {int(y)} {[10, 11, 12, 13, 14][y]}" == "004 4 14"


def test_iterators_have_a_method_next() -> None:
    for iterator in (Dataset.range(2).as_numpy_iterator(), iter(Dataset.range(2))):
        assert [int(iterator.next()), int(iterator.next())] == [0, 1]
        with pytest.raises(StopIteration):
            iterator.next()


def test_jax_arrays_go_in_and_come_out_of_functions() -> None:
    jnp = pytest.importorskip("jax.numpy")
    dataset = Dataset.from_tensor_slices(jnp.arange(4.0)).map(lambda x: jnp.sqrt(x) * 2).batch(4)
    (batch,) = dataset.as_numpy_iterator()
    assert type(batch) is np.ndarray
    np.testing.assert_allclose(batch, [0, 2, 2 * 2**0.5, 2 * 3**0.5], rtol=1e-6)
    assert jnp.sum(next(iter(dataset))) == pytest.approx(2 * (1 + 2**0.5 + 3**0.5), rel=1e-6)


def test_pandas_columns_stay_columns() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": [0.5, 1.5]})
    assert list(Dataset.from_tensor_slices(dict(frame)).as_numpy_iterator()) == [
        {"a": 1, "b": 0.5},
        {"a": 2, "b": 1.5},
    ]
    assert list(Dataset.from_tensor_slices(frame["a"]).as_numpy_iterator()) == [1, 2]


def test_arrays_of_the_user_cannot_be_changed_through_a_batch() -> None:
    x = np.zeros((4, 2))

    def spoil(row: np.ndarray) -> np.ndarray:
        row += 1
        return row

    for batch in Dataset.from_tensor_slices(x).map(spoil).batch(2).as_numpy_iterator():
        batch += 1
    assert x.sum() == 0


@pytest.mark.parametrize(
    ("build", "spec"),
    [
        (lambda: r(3), TensorSpec((), np.int64)),
        (lambda: r(3).batch(2), TensorSpec((None,), np.int64)),
        (lambda: r(3).batch(2, drop_remainder=True), TensorSpec((2,), np.int64)),
        (lambda: r(3).batch(2).unbatch(), TensorSpec((), np.int64)),
        (lambda: r(3).map(lambda x: np.zeros((x + 1, 4), np.uint8)), TensorSpec((1, 4), np.uint8)),
        (lambda: r(3).enumerate(), (TensorSpec((), np.int64), TensorSpec((), np.int64))),
        (lambda: Dataset.from_tensor_slices({"a": np.ones((3, 2))}), {"a": TensorSpec((2,), np.float64)}),
        (lambda: Dataset.from_generator(countdown), TensorSpec((), np.int32)),
        (lambda: Dataset.from_generator(countdown, "float32", ()), TensorSpec((), np.float32)),
        (lambda: Dataset.from_generator(countdown, np.int64), TensorSpec(None, np.int64)),
        (
            lambda: Dataset.from_generator(countdown, ("int32", {"a": "int8"}), ((None, 2), {"a": ()})),
            (TensorSpec((None, 2), np.int32), {"a": TensorSpec((), np.int8)}),
        ),
        (lambda: r(3).shuffle(2).repeat().cache().take(1).skip(0).filter(bool), TensorSpec((), np.int64)),
    ],
)
def test_element_spec(build: Callable[[], Dataset], spec: Any) -> None:
    assert build().element_spec == spec


def test_element_spec_reads_one_element_once() -> None:
    calls: list[int] = []
    dataset = r(5).map(lambda x: calls.append(int(x)) or x)
    assert dataset.element_spec == dataset.element_spec
    assert calls == [0]


def test_a_function_that_asks_for_what_is_not_there_is_named() -> None:
    """Its AttributeError was taken for one of the dataset: "A dataset has no 'element_spec'"."""
    dataset = r(4).map(lambda x: x.nothing).batch(2)
    with pytest.raises(AttributeError, match=r"'numpy\.int64' object has no attribute 'nothing'"):
        _ = dataset.element_spec
    with pytest.raises(AttributeError, match="A dataset has no 'nothing'"):
        _ = dataset.nothing


def test_generator_is_not_read_ahead() -> None:
    yielded: list[int] = []

    def endless() -> Any:
        for number in itertools.count():
            yielded.append(number)
            yield number

    assert numbers(Dataset.from_generator(endless).take(3).batch(2)) == [[0, 1], [2]]
    assert yielded == [0, 1, 2]


@pytest.mark.parametrize("signature", [None, TensorSpec((2,), "int64")])
def test_generator_may_fill_one_buffer_again_and_again(signature: TensorSpec | None) -> None:
    def rows() -> Any:
        buffer = np.zeros(2, np.int64)
        for number in range(3):
            buffer[:] = number
            yield buffer

    dataset = Dataset.from_generator(rows, output_signature=signature)
    assert numbers(dataset.batch(3)) == [[[0, 0], [1, 1], [2, 2]]]


def test_enumerate_from_below_zero() -> None:
    assert numbers(r(2).enumerate(start=-1)) == [(-1, 0), (0, 1)]


def test_take_before_shuffle_before_repeat_stays_inside() -> None:
    assert set(numbers(r(20).skip(5).take(3).shuffle(10, seed=1).repeat(9))) == {5, 6, 7}


def test_generator_elements_are_converted() -> None:
    signature = (TensorSpec((None,), "float32"), TensorSpec((), "int64"))
    dataset = Dataset.from_generator(lambda: iter([([1, 2], 3)]), output_signature=signature)
    x, y = next(dataset.as_numpy_iterator())
    assert (x.dtype, x.tolist(), y.dtype, int(y)) == (np.float32, [1.0, 2.0], np.int64, 3)


@pytest.mark.parametrize("dtype", ["string", bytes, np.bytes_, object])
def test_generated_text_and_binary_data_are_bytes(dtype: Any) -> None:
    texts = [b"ends in zeros\0\0", "größe"]
    expected = [b"ends in zeros\0\0", "größe".encode()]
    for dataset in (
        Dataset.from_generator(lambda: texts, output_types=dtype, output_shapes=()),
        Dataset.from_generator(lambda: texts, output_signature=TensorSpec((), dtype)),
        Dataset.from_generator(lambda: [texts], output_signature=TensorSpec((None,), dtype)).unbatch(),
    ):
        assert dataset.element_spec.dtype == object
        assert list(dataset.as_numpy_iterator()) == expected


def read(dataset: Dataset) -> Any:
    return list(dataset.as_numpy_iterator())


untyped: Any = r(2)
"""A dataset whose misuse the type checker does not see."""

ERRORS: list[tuple[str, Callable[[], Any], str, str]] = [
    (
        "unequal sizes",
        lambda: Dataset.from_tensor_slices((np.ones((3, 2)), {"y": np.ones(4)})),
        r"\[0\] \(3, 2\), \[1\]\['y'\] \(4,\)",
        "same examples",
    ),
    ("scalar slices", lambda: Dataset.from_tensor_slices(5), r"element \(\)", "from_tensors"),
    ("nothing to slice", lambda: Dataset.from_tensor_slices(()), "none", "from_tensors"),
    (
        "ragged list",
        lambda: Dataset.from_tensor_slices([[1], [2, 3]]),
        "could not be converted to an array",
        "equally long",
    ),
    ("generator object", lambda: Dataset.from_generator(countdown()), "is generator, which", "from_generator"),
    (
        "two signatures",
        lambda: Dataset.from_generator(countdown, output_types="int32", output_signature=TensorSpec(())),
        "Both",
        "output_signature alone",
    ),
    (
        "shapes unlike types",
        lambda: Dataset.from_generator(countdown, ("int32", "int32"), ((),)),
        "does not nest",
        "TensorSpec for each",
    ),
    (
        "generated shape",
        lambda: read(Dataset.from_generator(countdown, output_signature=TensorSpec((2,), "int32"))),
        r"component element of shape \(\); its output_signature says \(2,\)",
        "None stands for",
    ),
    (
        "generated dtype",
        lambda: read(Dataset.from_generator(lambda: iter(["a"]), output_signature=TensorSpec((), "int32"))),
        "not an array of int32",
        "dtype in output_signature",
    ),
    (
        "generated structure",
        lambda: read(Dataset.from_generator(countdown, output_signature=(TensorSpec(()), TensorSpec(())))),
        "unlike its output_signature",
        "same tuples and dicts",
    ),
    (
        "empty generator",
        lambda: Dataset.from_generator(lambda: iter(())).element_spec,
        "yields nothing",
        "output_signature=",
    ),
    ("no dtype", lambda: TensorSpec((), "nonsense"), "dtype is 'nonsense'", "float32"),
    ("range of text", lambda: untyped.range("3"), "str", "with integers"),
    ("range of nothing", lambda: Dataset.range(), r"got \(\)", "range\\(stop\\)"),
    ("range step 0", lambda: Dataset.range(1, 2, 0), "zero", "range\\(stop\\)"),
    ("zip of arrays", lambda: Dataset.zip((r(2), np.ones(2))), "Dataset, ndarray", "from_tensor_slices"),
    ("zip of nothing", lambda: Dataset.zip(), "got no dataset", "Dataset.zip"),
    ("concatenate array", lambda: untyped.concatenate(np.ones(2)), "ndarray", "from_tensor_slices"),
    ("map of nothing", lambda: untyped.map(None), "map_func is None", "Give a function"),
    ("map returns nothing", lambda: read(r(2).map(lambda x: None)), "returned None", "Return the new element"),
    ("map of empty", lambda: r(0).map(abs).element_spec, "given to map\\(abs\\) is empty", "at least one element"),
    ("filter of nothing", lambda: untyped.filter(3), "predicate is 3", "Give a function"),
    ("filter by number", lambda: read(r(2).filter(lambda x: x)), "returned array", "one boolean"),
    ("filter by many", lambda: read(r(2).filter(lambda x: [True, False])), "returned array", "numpy.all"),
    ("shuffle 0", lambda: r(2).shuffle(0), "buffer_size is 0", "10000"),
    ("shuffle text", lambda: untyped.shuffle("a"), "buffer_size is 'a'", "10000"),
    ("seed text", lambda: untyped.shuffle(2, seed="a"), "seed is 'a'", "integer, or None"),
    ("repeat -2", lambda: r(2).repeat(-2), "count is -2", "-1 for ever"),
    ("repeat half", lambda: untyped.repeat(0.5), "count is 0.5", "-1 for ever"),
    ("batch 0", lambda: r(2).batch(0), "batch_size is 0", "global batch"),
    ("batch -1", lambda: r(2).batch(-1), "batch_size is -1", "global batch"),
    ("take -2", lambda: r(2).take(-2), "count is -2", "-1 for all"),
    ("skip -2", lambda: r(2).skip(-2), "count is -2", "-1 for all"),
    ("shard 0", lambda: r(2).shard(0, 0), "num_shards is 0", "number of parts"),
    ("shard out of range", lambda: r(2).shard(2, 2), "index is 2, num_shards is 2", "0 to 1"),
    ("shard negative", lambda: r(2).shard(2, -1), "index is -1", "0 ... 1"),
    ("prefetch -2", lambda: r(2).prefetch(-2), "buffer_size is -2", "AUTOTUNE"),
    ("options of another kind", lambda: untyped.with_options({}), "builtins.dict", "stratagem.data.Options"),
    (
        "ragged batch",
        lambda: read(r(1, 3).map(lambda n: {"i": n, "x": np.zeros((n, 2))}).batch(2)),
        r"\['x'\] has elements of shapes \(1, 2\) and \(2, 2\)",
        "Pad or crop",
    ),
    (
        "batch of unequal batches",
        lambda: read(r(3).batch(2).batch(2)),
        r"shapes \(1,\) and \(2,\)",
        "Pad or crop",
    ),
    (
        "batch of unlike elements",
        lambda: read(r(2).map(lambda n: (n, n) if n else n).batch(2)),
        "built differently",
        "same tuples and dicts",
    ),
    ("unbatch of numbers", lambda: read(r(2).unbatch()), r"element \(\)", "unbatch\\(\\) only after batch"),
    (
        "batches without batch",
        lambda: next(Dataset.from_tensor_slices((np.ones((4, 5)), np.ones(4))).batches()),
        r"no common batch dimension; their shapes are: \[0\] \(5,\), \[1\] \(\)",
        r"dataset\.batch\(GLOBAL_BATCH_SIZE\)",
    ),
    ("prefetch of batches", lambda: r(2).batch(2).batches(prefetch=-1), "prefetch is -1", "or 0"),
    ("iteration", lambda: r(2).batch(2).batches(iteration=-1), "iteration is -1", "from 0"),
    (
        "zip of unequal batches",
        lambda: next(Dataset.zip(r(4).batch(2), r(6).batch(3)).batches()),
        "batches of 2 and 3 rows",
        r"Dataset\.zip\(\(a, b\)\)\.batch",
    ),
    ("seeds", lambda: r(2).shuffle(2).with_random_seeds([1, 2]), "2 seeds for a dataset with 1 shuffles", "same data"),
]


@pytest.mark.parametrize(("act", "found", "remedy"), [pytest.param(a, f, m, id=name) for name, a, f, m in ERRORS])
def test_errors(act: Callable[[], Any], found: str, remedy: str) -> None:
    with pytest.raises(InputError, match=rf"(?s){found}.*\n  What to do: .*{remedy}"):
        act()


def test_shard_hint_needs_a_strategy() -> None:
    dataset = r(6).shard(experimental.SHARD_HINT, experimental.SHARD_HINT).batch(2)
    assert dataset.has_shard_hint
    with pytest.raises(UsageError, match=r"outside a strategy.*\n.*\n.*AutoShardPolicy.HINT"):
        next(iter(dataset))
    assert numbers(dataset.with_shard_hint(num_shards=2, index=1)) == [[1, 3], [5]]
    assert not dataset.with_shard_hint(2, 1).has_shard_hint


def test_wide_integers_of_python_stay_wide() -> None:
    assert Dataset.from_tensors(2**40).element_spec.dtype == np.int64


def test_text_is_bytes() -> None:
    for dataset in (Dataset.from_tensor_slices(["a", "bc"]), Dataset.from_tensor_slices(np.array(["a", "bc"], object))):
        assert dataset.element_spec == TensorSpec((), "string")
        assert list(dataset.as_numpy_iterator()) == [b"a", b"bc"]
        assert dataset.batch(2).get_single_element().tolist() == [b"a", b"bc"]


def test_names_of_a_function_mean_what_they_mean_when_it_is_called() -> None:
    """A dataset holds its functions, not what their names led to when it was made."""
    factor = 1
    threshold = 0
    dataset = Dataset.range(4).map(lambda x: x * factor).filter(lambda x: x > threshold)
    assert list(dataset.as_numpy_iterator()) == [1, 2, 3]
    factor, threshold = 10, 10
    assert list(dataset.as_numpy_iterator()) == [20, 30]
