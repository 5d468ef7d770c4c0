"""Two workers train on TFRecord files of `tf.train.Example`, written and read without TensorFlow.

Run it:
    stratagem run --workers 2 examples/records.py

Without `--folder` each worker first writes the handwritten digits into a folder of its own, as if that were the disk
of its machine: the files must be the same on all workers, but need not be shared. Of each file a worker reads the
records that it needs.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import digits
import numpy as np

import stratagem
from stratagem import keras
from stratagem.train import BytesList, Example, Feature, Features, Int64List

FEATURES = {
    "image": stratagem.io.FixedLenFeature([], "string"),
    "label": stratagem.io.FixedLenFeature([], "int64"),
}


def write_digits(folder: Path, files: int = 4) -> None:
    """Write 1,437 digits, a quarter of them into each file."""
    (images, labels), _ = digits.load()
    for number in range(files):
        with stratagem.io.TFRecordWriter(folder / f"digits-{number}.tfrecord") as writer:
            for image, label in zip(images[number::files], labels[number::files], strict=True):
                pixels = BytesList(value=[(image * 255).astype("uint8").tobytes()])
                feature = {
                    "image": Feature(bytes_list=pixels),
                    "label": Feature(int64_list=Int64List(value=[label])),
                }
                writer.write(Example(features=Features(feature=feature)).SerializeToString())


def parse(record: bytes) -> tuple[np.ndarray, np.int64]:
    example = stratagem.io.parse_single_example(record, FEATURES)
    pixels = stratagem.io.decode_raw(example["image"], "uint8")
    return pixels.reshape(28, 28, 1) / np.float32(255), example["label"]


def make_model() -> keras.Model:
    model = keras.Sequential(
        [
            keras.layers.InputLayer(shape=(28, 28, 1)),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.Adam(learning_rate=0.003),
        metrics=["accuracy"],
    )
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="a folder of such TFRecord files")
    options = parser.parse_args()

    strategy = stratagem.MultiWorkerMirroredStrategy()

    with tempfile.TemporaryDirectory() as written:
        if not options.folder:
            write_digits(Path(written))
        files = stratagem.data.Dataset.list_files((options.folder or Path(written)) / "*.tfrecord", shuffle=False)
        records = stratagem.data.TFRecordDataset(files)
        test_size = len(records) // 5
        training = records.skip(test_size).shuffle(len(records)).map(parse).batch(32 * strategy.num_replicas_in_sync)
        validation = records.take(test_size).map(parse).batch(32 * strategy.num_replicas_in_sync)
        if strategy.is_chief:
            print(f"{len(records)} records in {len(files)} files, {test_size} of them for validation")
        with strategy.scope():
            model = make_model()
        model.fit(training, epochs=options.epochs, validation_data=validation)


if __name__ == "__main__":
    main()
