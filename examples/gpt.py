"""A small GPT that writes on in the words of a text, with its state in shards of the devices or workers.

Run it:
    python examples/gpt.py --devices 2 --shard optimizer
    stratagem run --workers 2 examples/gpt.py --strategy multi_worker --shard parameters
    stratagem run --workers 3 --spares 1 examples/gpt.py --strategy multi_worker --shard parameters
    python examples/gpt.py --devices 4 --shard parameters --model-parallel 2

The model, its data and the call of `fit` are the same at every stage, and so are the losses, to the last digit:
`--shard` only says what each device holds a part of between steps. `--model-parallel` says how many devices compute
each replica's part of a batch together. What differs from a program for one device is marked `differs`. It trains on
the pages in docs/, letter by letter.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

import stratagem  # differs
from stratagem import keras  # differs

LETTERS = 128


def read_text(folder: Path) -> np.ndarray:
    """Return the pages of a folder as one array of letters."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md")))
    return np.frombuffer(text.encode("ascii", errors="ignore"), np.uint8).astype("int32")


def make_gpt(length: int, width: int, blocks: int, heads: int) -> keras.Model:
    letters = keras.Input((length,), dtype="int32")
    places = np.arange(length)[None]
    x = keras.layers.Embedding(LETTERS, width)(letters) + keras.layers.Embedding(length, width)(places)
    for _ in range(blocks):
        normed = keras.layers.LayerNormalization()(x)
        x = x + keras.layers.MultiHeadAttention(heads, width // heads)(normed, normed, use_causal_mask=True)
        normed = keras.layers.LayerNormalization()(x)
        x = x + keras.layers.Dense(width)(keras.layers.Dense(4 * width, activation="gelu")(normed))
    model = keras.Model(letters, keras.layers.Dense(LETTERS)(keras.layers.LayerNormalization()(x)))
    model.compile(
        optimizer=keras.optimizers.AdamW(3e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def make_dataset(text: np.ndarray, length: int, batch: int) -> stratagem.data.Dataset:
    """Return a dataset of pieces of the text, and of the same pieces one letter further."""
    pieces = (len(text) - 1) // length
    inputs = text[: pieces * length].reshape(pieces, length)
    targets = text[1 : pieces * length + 1].reshape(pieces, length)
    return stratagem.data.Dataset.from_tensor_slices((inputs, targets)).shuffle(pieces, seed=1).batch(batch)


def held_megabytes(variables: list[keras.Variable]) -> float:
    """Return what the first device of this worker holds of some variables."""
    return sum(variable.value.addressable_data(0).nbytes for variable in variables) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", choices=("mirrored", "multi_worker"), default="mirrored")
    parser.add_argument("--shard", choices=("none", "optimizer", "gradients", "parameters"), default="parameters")
    parser.add_argument("--model-parallel", type=int, default=1, help="devices of each replica")
    parser.add_argument("--devices", type=int, help="so many virtual devices of the CPU")
    parser.add_argument("--length", type=int, default=32, help="letters in a piece of text")
    parser.add_argument("--width", type=int, default=128, help="width of the network")
    parser.add_argument("--blocks", type=int, default=2, help="blocks of the network")
    parser.add_argument("--batch", type=int, default=64, help="pieces in a step, of all devices together")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="steps in an epoch; all there are if not given")
    arguments = parser.parse_args()
    if arguments.devices:
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={arguments.devices}"

    keras.utils.set_random_seed(1)
    shard = None if arguments.shard == "none" else arguments.shard
    made = {"mirrored": stratagem.MirroredStrategy, "multi_worker": stratagem.MultiWorkerMirroredStrategy}
    strategy = made[arguments.strategy](shard=shard, model_parallel=arguments.model_parallel)  # differs

    with strategy.scope():  # differs
        model = make_gpt(arguments.length, arguments.width, arguments.blocks, heads=4)
    text = read_text(Path(__file__).parents[1] / "docs")
    dataset = make_dataset(text, arguments.length, arguments.batch)
    if arguments.steps:
        dataset = dataset.take(arguments.steps)
    history = model.fit(dataset, epochs=arguments.epochs, verbose=2 if strategy.is_chief else 0)

    if strategy.is_chief:
        print(f"loss after {arguments.epochs} epoch(s): {history.history['loss'][-1]:.6f}")
        slots = [variable for variable in model.optimizer.variables if variable.shape]
        print(
            f"a device holds {held_megabytes(model.weights):.2f} MB of weights and {held_megabytes(slots):.2f} MB of "
            "the optimizer's slots"
        )


if __name__ == "__main__":
    main()
