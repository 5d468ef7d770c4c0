"""Two workers train on a folder of images: a subfolder for each class, decoded by the worker that needs them.

Run it:
    stratagem run --workers 2 examples/images.py

Without `--folder` each worker first writes the handwritten digits as PNG files into a folder of its own, as if that
were the disk of its machine: the files must be the same on all workers, but need not be shared.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import digits
from PIL import Image

import stratagem
from stratagem import keras


def write_digits(folder: Path) -> None:
    """Write 1,437 digits as `folder/<digit>/<number>.png`."""
    (images, labels), _ = digits.load()
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        file = folder / str(label) / f"{number:04}.png"
        file.parent.mkdir(exist_ok=True)
        Image.fromarray((image * 255).astype("uint8")).save(file)


def make_model(num_classes: int) -> keras.Model:
    model = keras.Sequential(
        [
            keras.layers.InputLayer(shape=(28, 28, 1)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(num_classes),
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
    parser.add_argument("--folder", help="a folder of images, with a subfolder for each class")
    options = parser.parse_args()

    strategy = stratagem.MultiWorkerMirroredStrategy()

    with tempfile.TemporaryDirectory() as written:
        if not options.folder:
            write_digits(Path(written))
        training, validation = stratagem.data.image_dataset_from_directory(
            options.folder or written,
            color_mode="grayscale",
            image_size=(28, 28),
            batch_size=32 * strategy.num_replicas_in_sync,
            validation_split=0.2,
            subset="both",
            seed=1,
            verbose=strategy.is_chief,
        )
        with strategy.scope():
            model = make_model(len(training.class_names))
        model.fit(training, epochs=options.epochs, validation_data=validation)


if __name__ == "__main__":
    main()
