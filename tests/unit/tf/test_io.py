"""`tf.io`: files, folders, and what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.errors import InputError

gfile = tf.io.gfile


def test_files_are_written_listed_moved_and_removed(tmp_path: Path) -> None:
    folder = gfile.join(str(tmp_path), "a", "b")
    gfile.makedirs(folder)
    gfile.makedirs(folder)  # there already
    with gfile.GFile(f"{folder}/one", "w") as file:
        file.write("line 1\nline 2\n")
    assert list(gfile.GFile(f"{folder}/one")) == ["line 1\n", "line 2\n"]
    assert gfile.stat(f"{folder}/one").length == 14
    assert gfile.listdir(folder) == ["one"]
    gfile.copy(f"{folder}/one", f"{folder}/two")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        gfile.copy(f"{folder}/one", f"{folder}/two")
    gfile.rename(f"{folder}/two", f"{folder}/one", overwrite=True)
    assert gfile.glob(f"{folder}/*") == [f"{folder}/one"]
    assert [(len(folders), len(files)) for _, folders, files in gfile.walk(str(tmp_path))] == [(1, 0), (1, 0), (0, 1)]
    with pytest.raises(FileExistsError):
        gfile.mkdir(folder)
    gfile.remove(f"{folder}/one")
    assert not gfile.exists(f"{folder}/one")
    gfile.rmtree(tmp_path / "a")
    assert not gfile.isdir(folder)
    with pytest.raises(FileNotFoundError):
        gfile.rmtree(folder)


def test_files_elsewhere_go_through_fsspec() -> None:
    folder = "memory://here/a"
    gfile.makedirs(folder)
    with gfile.GFile(f"{folder}/one", "w") as file:
        file.write("words")
    gfile.copy(f"{folder}/one", f"{folder}/two")
    gfile.rename(f"{folder}/two", f"{folder}/three")
    assert gfile.listdir(folder) == ["one", "three"]
    assert gfile.glob(f"{folder}/th*") == [f"{folder}/three"]
    assert (gfile.stat(f"{folder}/three").length, gfile.stat(folder).is_directory) == (5, True)
    assert tf.io.read_file(f"{folder}/one") == b"words"
    assert [files for _, _, files in gfile.walk(folder)] == [["one", "three"]]
    gfile.rmtree(folder)
    assert not gfile.exists(f"{folder}/one")


def test_names_of_tensorflow_1(tmp_path: Path) -> None:
    old = tf.compat.v1.gfile
    with old.Open(f"{tmp_path}/x", "w") as file:
        file.write("y")
    assert old.Exists(f"{tmp_path}/x")
    assert old.Glob(f"{tmp_path}/*") == [f"{tmp_path}/x"]
    old.DeleteRecursively(str(tmp_path))
    assert not old.Exists(str(tmp_path))


def test_a_whole_file(tmp_path: Path) -> None:
    tf.io.write_file(f"{tmp_path}/new/file", b"\x00\xff")
    assert tf.io.read_file(f"{tmp_path}/new/file") == b"\x00\xff"
    assert tf.io.matching_files(f"{tmp_path}/*/file").tolist() == [f"{tmp_path}/new/file".encode()]


@pytest.mark.parametrize("array", [np.arange(6).reshape(2, 3), np.float32(2.5), np.array([True, False])])
def test_a_tensor_becomes_bytes_and_comes_back(array: np.ndarray) -> None:
    found = tf.io.parse_tensor(tf.io.serialize_tensor(array), array.dtype)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_bytes_that_hold_something_else_are_refused() -> None:
    with pytest.raises(InputError, match="was asked for float32, but the bytes hold int64"):
        tf.io.parse_tensor(tf.io.serialize_tensor(np.arange(3)), np.float32)
    with pytest.raises(InputError, match="another format"):
        tf.io.parse_tensor(b"\x08\x01\x12\x04", np.float32)


def test_records_as_programs_write_and_read_them(tmp_path: Path) -> None:
    path = f"{tmp_path}/digits.tfrecord"
    images = np.arange(32, dtype=np.uint8).reshape(2, 4, 4, 1)
    with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions("GZIP")) as writer:
        for label, image in enumerate(images):
            feature = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[tf.io.encode_png(image)])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    described = {
        "image": tf.io.FixedLenFeature([], "string"),
        "label": tf.io.FixedLenFeature([], "int64"),
    }

    def parse(record: bytes) -> tuple[np.ndarray, np.ndarray]:
        example = tf.io.parse_single_example(record, described)
        return tf.io.decode_png(example["image"], channels=1), example["label"]

    found = list(tf.data.TFRecordDataset(path, compression_type="GZIP").map(parse).as_numpy_iterator())
    np.testing.assert_array_equal([image for image, _ in found], images)
    assert [int(label) for _, label in found] == [0, 1]


def test_columns_of_lines() -> None:
    a, b, c = tf.io.decode_csv(["1,2.5,x", "3,,"], [[0], [7.5], ["none"]])
    assert (a.tolist(), b.tolist(), c.tolist()) == ([1, 3], [2.5, 7.5], [b"x", b"none"])
    assert (a.dtype, b.dtype) == (np.int32, np.float32)
    (only,) = tf.io.decode_csv("1;2;3", [0], field_delim=";", select_cols=[2])
    assert int(only) == 3
    with pytest.raises(InputError, match="has 2 columns; 3 are described"):
        tf.io.decode_csv("1,2", [0, 0, 0])
    with pytest.raises(InputError, match="needs a value in every line"):
        tf.io.decode_csv(",2", [[], 0])
    with pytest.raises(InputError, match="cannot be read"):
        tf.io.decode_csv("one", [0])


def test_images_become_files() -> None:
    image = np.random.default_rng(0).integers(0, 255, (8, 6, 3), np.uint8)
    np.testing.assert_array_equal(tf.io.decode_png(tf.io.encode_png(image)), image)
    assert tf.io.extract_jpeg_shape(tf.io.encode_jpeg(image)).tolist() == [8, 6, 3]
    with pytest.raises(InputError, match="shape \\(8, 6, 3\\) and dtype float32"):
        tf.io.encode_jpeg(image.astype(np.float32))


def test_decoded_pixels_answer_as_tensors_do_in_a_map() -> None:
    def load(contents: bytes) -> Any:
        image = tf.io.decode_png(contents, channels=3)
        image.set_shape([2, 2, 3])
        raw = tf.io.decode_raw(contents, tf.uint8)
        raw.set_shape([None])
        return tf.cast(image, tf.float32), int(image.numpy().sum())

    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    ((image, total),) = tf.data.Dataset.from_tensor_slices([tf.io.encode_png(pixels)]).map(load)
    np.testing.assert_array_equal(image, pixels)
    assert int(total) == 66


def test_bytes_and_arrays_answer_numpy(tmp_path: Path) -> None:
    """What TensorFlow returns as a tensor; bytes keep the zeros at their end."""
    ends_in_zeros = tf.io.serialize_tensor(np.zeros(3, np.int32))
    assert ends_in_zeros.numpy()[-4:] == bytes(4)
    assert tf.io.parse_tensor(ends_in_zeros.numpy(), tf.int32).numpy().tolist() == [0, 0, 0]
    tf.io.write_file(str(tmp_path / "a"), ends_in_zeros)
    assert tf.io.read_file(str(tmp_path / "a")).numpy() == ends_in_zeros.numpy()
    assert tf.io.matching_files(str(tmp_path / "*")).numpy().tolist() == [str(tmp_path / "a").encode()]
    pixels = np.zeros((2, 5, 3), np.uint8)
    for encode in (tf.io.encode_jpeg, tf.io.encode_png):
        feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[encode(pixels).numpy()]))
        assert tf.io.decode_image(feature.bytes_list.value[0]).shape == (2, 5, 3)


def test_what_is_parsed_outside_a_dataset_answers_numpy() -> None:
    feature = {
        "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"eel"])),
        "numbers": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0, 2.0])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[3])),
    }
    record = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
    described = {
        "text": tf.io.FixedLenFeature([], tf.string),
        "numbers": tf.io.FixedLenFeature([2], tf.float32),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    one, two = tf.io.parse_single_example(record, described), tf.io.parse_example([record, record], described)
    assert (one["text"].numpy(), one["numbers"].numpy().tolist(), one["label"].numpy()) == (b"eel", [1.0, 2.0], 3)
    assert (two["text"].numpy().tolist(), two["label"].numpy().tolist()) == ([b"eel"] * 2, [3, 3])
    number, text = tf.io.decode_csv("1.5,x", [0.0, ""])
    assert (number.numpy(), text.numpy()) == (1.5, b"x")
    dataset = tf.data.Dataset.from_tensors(record).map(lambda each: tf.io.parse_single_example(each, described))
    assert {name: spec.shape for name, spec in dataset.element_spec.items()} == {
        "text": (),
        "numbers": (2,),
        "label": (),
    }
