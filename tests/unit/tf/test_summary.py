"""`tf.summary`: what programs write is in the event file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

import stratagem.tf as tf
from stratagem.checkpoint.summary import read_scalars


def written(folder: Path) -> dict[str, Any]:
    """Return the last value of each tag in a folder's event files."""
    found: dict[str, Any] = {}
    for file in folder.glob("*tfevents*"):
        data, start = file.read_bytes(), 0
        while start < len(data):
            size = int.from_bytes(data[start : start + 8], "little")
            event = Event.FromString(data[start + 12 : start + 12 + size])
            found.update({value.tag: value for value in event.summary.value})
            start += size + 16
    return found


def test_numbers_at_steps(tmp_path: Path) -> None:
    writer = tf.summary.create_file_writer(str(tmp_path))
    step = keras.Variable(7, dtype="int32", trainable=False)
    with writer.as_default():
        assert tf.summary.scalar("loss", keras.ops.convert_to_tensor(0.5), step=1)
        tf.summary.experimental.set_step(step)
        tf.summary.scalar("loss", 0.25)
        with tf.summary.experimental.summary_scope("train"), tf.summary.record_if(lambda: True):
            tf.summary.scalar("accuracy", np.float32(0.75))
        with tf.summary.record_if(False):
            assert not tf.summary.should_record_summaries()
            assert not tf.summary.scalar("hidden", 1.0)
    tf.summary.experimental.set_step(None)
    writer.close()
    assert read_scalars(tmp_path) == {1: {"loss": 0.5}, 7: {"loss": 0.25, "train/accuracy": 0.75}}


def test_compiled_functions_write_each_time_they_run_once_for_all_replicas(tmp_path: Path) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    writer = tf.summary.create_file_writer(tmp_path)
    with strategy.scope():
        weight = keras.Variable(1.0)
        optimizer = keras.optimizers.SGD(0.5)
        optimizer.build([weight])

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight * x)
            with writer.as_default():  # traced again for the gradient, and written once
                tf.summary.scalar("loss", loss, step=optimizer.iterations)
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
        return loss

    train = tf.function(lambda x: strategy.run(step, args=(x,)))
    for _ in range(3):
        train(2.0)
    writer.close()
    # Each replica's gradient is 2, and they are summed: 1, then 1 - 0.5 * 4 = -1, then -3.
    assert read_scalars(tmp_path) == {0: {"loss": 2.0}, 1: {"loss": -2.0}, 2: {"loss": -6.0}}


def test_without_a_writer_nothing_happens() -> None:
    assert not tf.summary.should_record_summaries()
    assert not tf.summary.scalar("loss", 1.0)  # and no step is asked for
    with tf.summary.create_noop_writer().as_default():
        assert tf.summary.scalar("loss", 1.0, step=0)


def test_a_step_is_needed(tmp_path: Path) -> None:
    with tf.summary.create_file_writer(tmp_path).as_default():
        with pytest.raises(ValueError, match="without a step"):
            tf.summary.scalar("loss", 1.0)


def test_a_curve_is_made_of_numbers() -> None:
    with pytest.raises(ValueError, match=r"array of shape \(2,\)"):
        tf.summary.scalar("loss", [1.0, 2.0], step=0)


def test_distributions_images_and_text(tmp_path: Path) -> None:
    with tf.summary.create_file_writer(tmp_path).as_default(step=3) as writer:
        tf.summary.histogram("weights", np.arange(10.0), buckets=5)
        tf.summary.image("digits", np.full((2, 4, 6, 1), 0.5), max_outputs=1)
        tf.summary.text("note", "**bold**")
        writer.close()
    found = written(tmp_path)
    histogram = found["weights"].histo
    assert (histogram.num, histogram.sum, list(histogram.bucket)) == (10, 45, [2, 2, 2, 2, 2])
    assert (found["digits"].image.height, found["digits"].image.width) == (4, 6)
    assert tf.io.decode_png(found["digits"].image.encoded_image_string, channels=1).tolist()[0][0] == [127]
    (note,) = [value for tag, value in found.items() if tag.startswith("note")]
    assert b"**bold**" in note.tensor.SerializeToString()
    with pytest.raises(ValueError, match="not a batch of images"):
        tf.summary.image("digits", np.zeros((4, 6, 1)), step=0)
