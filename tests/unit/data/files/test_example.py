"""`tf.train.Example`: what TensorFlow wrote is read, and what is read otherwise than it was written is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stratagem
from stratagem.core.errors import InputError
from stratagem.data import TFRecordDataset
from stratagem.io import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    VarLenFeature,
    parse_example,
    parse_single_example,
)
from stratagem.train import BytesList, Example, Feature, Features, FloatList, Int64List

GOLDEN = Path(__file__).parent / "golden" / "plain.tfrecord"

FEATURES = {
    "label": FixedLenFeature([], np.int64),
    "image": FixedLenFeature([], "string"),
    "weights": FixedLenFeature([3], "float32"),
    "ids": VarLenFeature(np.dtype("int64")),
    "words": FixedLenFeature((2,), bytes),
    "empty": FixedLenFeature([], "int64", default_value=7),
    "absent": FixedLenFeature([2], "float32", default_value=[1, 2]),
    "renamed": RaggedFeature("int64", value_key="ids"),
}


def example(**features: object) -> bytes:
    return Example(features=Features(feature=features)).SerializeToString()


def int64s(*values: int) -> object:
    return Feature(int64_list=Int64List(value=values))


def test_examples_of_tensorflow_are_read() -> None:
    dataset = TFRecordDataset(GOLDEN).map(lambda record: parse_single_example(record, FEATURES))
    elements = list(dataset.as_numpy_iterator())
    assert len(elements) == 4
    for k, element in enumerate(elements):
        assert (element["label"], element["label"].dtype) == (-k, np.int64)
        assert element["image"] == bytes([k, 0, 255, 0])
        assert element["weights"].tolist() == np.array([k + 0.5, -1e30, 0.1], np.float32).tolist()
        assert element["weights"].dtype == np.float32
        assert element["ids"].tolist() == element["renamed"].tolist() == [2**40 * j for j in range(k)]
        assert element["words"].tolist() == [b"", "größe".encode()]
        assert element["empty"] == 7
        assert element["absent"].tolist() == [1, 2]
    assert dataset.element_spec["label"] == stratagem.data.TensorSpec((), "int64")
    for record in TFRecordDataset(GOLDEN).take(1):  # as a program for eager tensors writes it
        assert parse_single_example(record, {"label": FEATURES["label"]}) == {"label": 0}
        assert Example.FromString(record.numpy()).features.feature["label"].int64_list.value[:] == [0]


def test_a_batch_is_read_at_once() -> None:
    (batch,) = TFRecordDataset(GOLDEN).batch(4).map(lambda records: parse_example(records, FEATURES))
    assert batch["label"].tolist() == [0, -1, -2, -3]
    assert batch["weights"].shape == (4, 3)
    assert batch["image"].tolist()[3] == b"\3\0\xff\0"
    assert batch["words"].shape == (4, 2)
    assert [ids.tolist() for ids in batch["ids"].numpy()] == [[2**40 * j for j in range(k)] for k in range(4)]
    assert batch["absent"].tolist() == [[1, 2]] * 4
    assert batch["renamed"].to_list() == [[2**40 * j for j in range(k)] for k in range(4)]
    assert batch["renamed"].to_tensor(default_value=-1)[1].tolist() == [0, -1, -1]


def test_ragged_features() -> None:
    records = [example(x=int64s(1, 2)), example()]
    assert parse_example(records, {"x": RaggedFeature("int64")})["x"].to_list() == [[1, 2], []]
    assert parse_example([], {"x": RaggedFeature("int64")})["x"].to_list() == []
    words = [example(x=Feature(bytes_list=BytesList(value=[b"a", b"b"]))), example()]
    assert parse_example(words, {"x": RaggedFeature("string", row_splits_dtype="int64")})["x"].to_list() == [
        [b"a", b"b"],
        [],
    ]
    with pytest.raises(InputError, match="was given 1 partitions"):
        RaggedFeature("int64", partitions=["lengths"])


def test_what_is_written_is_what_tensorflow_writes() -> None:
    (first, *_) = TFRecordDataset(GOLDEN).as_numpy_iterator()
    features = {
        "image": Feature(bytes_list=BytesList(value=[b"\0\0\xff\0"])),
        "label": int64s(0),
        "weights": Feature(float_list=FloatList(value=[0.5, -1e30, 0.1])),
        "ids": int64s(),
        "words": Feature(bytes_list=BytesList(value=[b"", "größe".encode()])),
        "empty": Feature(),
    }
    written = Example(features=Features(feature=features))
    assert written.SerializeToString(deterministic=True) == first
    again = Example()
    again.ParseFromString(first)
    assert again == written
    assert again.features.feature["image"].WhichOneof("kind") == "bytes_list"


def test_sequences() -> None:
    records = [example(x=int64s(*range(size))) for size in (4, 0, 2)]
    features = {"x": FixedLenSequenceFeature([2], "int64", allow_missing=True, default_value=-1)}
    assert parse_single_example(records[0], features)["x"].tolist() == [[0, 1], [2, 3]]
    assert parse_example([*records, b""], features)["x"].tolist() == [
        [[0, 1], [2, 3]],
        [[-1, -1], [-1, -1]],
        [[0, 1], [-1, -1]],
        [[-1, -1], [-1, -1]],
    ]
    with pytest.raises(InputError, match="has 3 values; a step has 2"):
        parse_single_example(example(x=int64s(1, 2, 3)), features)
    with pytest.raises(InputError, match="no feature 'y'; it has 'x'"):
        parse_single_example(records[0], {"y": FixedLenSequenceFeature([2], "int64")})


def test_text_as_default_becomes_bytes() -> None:
    features = {
        "a": FixedLenFeature([], "string", default_value=""),
        "b": FixedLenFeature([2], "string", default_value=["größe", b"x"]),
        "c": FixedLenSequenceFeature([], "string", allow_missing=True, default_value="-"),
    }
    records = [example(c=Feature(bytes_list=BytesList(value=[b"one"]))), b""]
    parsed = parse_single_example(records[0], features)
    assert (parsed["a"], parsed["b"].tolist()) == (b"", ["größe".encode(), b"x"])
    assert parse_example(records, features)["c"].tolist() == [[b"one"], [b"-"]]


def test_other_encodings_of_the_same_example() -> None:
    packed = example(x=int64s(3, -1), y=Feature(float_list=FloatList(value=[1.5])))
    # Each number by itself instead of packed, and a field that a later version may add.
    unpacked = bytes.fromhex("0a190a170a0178 1212 1a100803 08ffffffffffffffffff01 aa0600".replace(" ", ""))
    features = {"x": VarLenFeature("int64")}
    assert parse_single_example(packed, features)["x"].tolist() == [3, -1]
    assert parse_single_example(unpacked, features)["x"].tolist() == [3, -1]


def test_parts_of_a_sparse_tensor() -> None:
    """Numbers of TensorFlow 2.21."""
    features: Any = {"x": VarLenFeature("int64")}
    records = [example(x=int64s(4, 5)), example(x=int64s()), example(x=int64s(6))]

    def parts(x: Any) -> list[Any]:
        return [x.values.tolist(), x.indices.tolist(), x.dense_shape.tolist()]

    assert parts(parse_single_example(records[0], features)["x"]) == [[4, 5], [[0], [1]], [2]]
    assert parts(parse_single_example(records[1], features)["x"]) == [[], [], [0]]
    batch = parse_example(records, features)["x"]
    assert parts(batch) == [[4, 5, 6], [[0, 0], [0, 1], [2, 0]], [3, 2]]
    assert batch.values.dtype == np.int64
    dataset = stratagem.data.Dataset.from_tensor_slices(records)
    sums = dataset.map(lambda record: parse_single_example(record, features)["x"].values.sum())
    assert list(sums.as_numpy_iterator()) == [9, 0, 6]
    text = Feature(bytes_list=BytesList(value=[b"a", b"b"]))
    words: Any = parse_single_example(example(x=text), {"x": VarLenFeature("string")})["x"]
    assert parts(words) == [[b"a", b"b"], [[0], [1]], [2]]


@pytest.mark.parametrize(
    ("record", "feature", "message"),
    [
        (b"\xff\xff garbage", FixedLenFeature([], "int64"), "A record of 10 bytes is not a tf.train.Example"),
        (None, FixedLenFeature([], "int64"), "A record of NoneType"),
        (b"", FixedLenFeature([], "int64"), "no feature 'x'; it has none"),
        ([1.5], FixedLenFeature([], "int64"), "'x' of an example is a float_list; it is read as int64"),
        ([1.5], VarLenFeature("string"), "'x' of an example is a float_list; it is read as string"),
        ([1.5, 2.5], FixedLenFeature([], "float32"), r"'x' of an example has 2 values, but shape \(\) has 1"),
    ],
)
def test_examples_that_are_not_as_expected(record: object, feature: object, message: str) -> None:
    if isinstance(record, list):
        record = example(x=Feature(float_list=FloatList(value=record)))
    with pytest.raises(InputError, match=message):
        parse_single_example(record, {"x": feature})


def test_a_record_that_is_cut_short() -> None:
    (*_, record) = TFRecordDataset(GOLDEN).as_numpy_iterator()
    for size in (1, 20, len(record) - 1):
        with pytest.raises(InputError, match=rf"A record of {size} bytes is not a tf\.train\.Example"):
            parse_single_example(record[:size], {})


def test_wrong_configurations() -> None:
    with pytest.raises(InputError, match="dtype of a feature is 'float64'"):
        FixedLenFeature([], "float64")
    with pytest.raises(InputError, match=r"default_value is \[1, 2\]"):
        FixedLenFeature([3], "int64", [1, 2])


def test_a_number_is_the_shape_of_a_list() -> None:
    """As in TensorFlow: `FixedLenFeature((3), tf.float32)` forgets a comma."""
    record = example(x=int64s(1, 2, 3), steps=int64s(4, 5))
    features = {"x": FixedLenFeature(np.int64(3), "int64"), "steps": FixedLenSequenceFeature(1, "int64")}
    parsed = parse_single_example(record, features)
    assert parsed["x"].tolist() == [1, 2, 3]
    assert parsed["steps"].tolist() == [[4], [5]]


def test_a_default_is_not_shared() -> None:
    features = {"x": FixedLenFeature([2], "int64", 0)}
    parse_single_example(b"", features)["x"][0] = 5
    assert parse_single_example(b"", features)["x"].tolist() == [0, 0]
