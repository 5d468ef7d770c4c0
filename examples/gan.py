"""A small GAN on handwritten digits: two models, two optimizers and two tapes in one replica function.

Run it:
    python examples/gan.py                # all GPUs; without any, the CPU
    python examples/gan.py --devices 2    # two virtual CPU devices, to try it without GPUs
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import digits
import numpy as np

import stratagem
from stratagem import keras

NOISE = 16
"""Random numbers that the generator makes an image of."""


def make_generator() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((NOISE,)),
            keras.layers.Dense(64, activation="leaky_relu"),
            keras.layers.Dense(28 * 28, activation="sigmoid"),
            keras.layers.Reshape((28, 28)),
        ]
    )


def make_discriminator() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="leaky_relu"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(1),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size-per-replica", type=int, default=32)
    parser.add_argument("--devices", type=int, help="virtual CPU devices, to try it without GPUs")
    parser.add_argument("--data", default=os.environ.get("STRATAGEM_DATA"), help="folder with mnist.npz")
    options = parser.parse_args()
    if options.devices:
        stratagem.testing.virtual_devices(options.devices)

    strategy = stratagem.MirroredStrategy()  # stands before all other use of JAX
    keras.utils.set_random_seed(1)

    (images, _), _ = digits.load(options.data)
    dataset = stratagem.data.Dataset.from_tensor_slices(images).shuffle(len(images))
    dataset = dataset.batch(options.batch_size_per_replica * strategy.num_replicas_in_sync)
    dist_dataset = strategy.experimental_distribute_dataset(dataset)

    with strategy.scope():
        generator, discriminator = make_generator(), make_discriminator()
        generator_optimizer = keras.optimizers.Adam(1e-3, beta_1=0.5)
        discriminator_optimizer = keras.optimizers.Adam(1e-3, beta_1=0.5)
        cross_entropy = keras.losses.BinaryCrossentropy(from_logits=True, reduction=None)
        seeds = keras.random.SeedGenerator(2)  # every replica draws noise of its own

    def average_loss(target: float, logits: Any) -> Any:
        targets = keras.ops.full_like(logits, target)
        return stratagem.nn.compute_average_loss(cross_entropy(targets, logits))

    def train_step(real: Any) -> tuple[Any, Any]:
        noise = keras.random.normal((real.shape[0], NOISE), seed=seeds)
        with stratagem.GradientTape() as generator_tape, stratagem.GradientTape() as discriminator_tape:
            on_real = discriminator(real, training=True)
            on_fake = discriminator(generator(noise, training=True), training=True)
            generator_loss = average_loss(1.0, on_fake)
            discriminator_loss = average_loss(1.0, on_real) + average_loss(0.0, on_fake)
        for tape, loss, model, optimizer in (
            (generator_tape, generator_loss, generator, generator_optimizer),
            (discriminator_tape, discriminator_loss, discriminator, discriminator_optimizer),
        ):
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return generator_loss, discriminator_loss

    @stratagem.function
    def distributed_train_step(real: Any) -> tuple[Any, Any]:
        return strategy.reduce(stratagem.ReduceOp.SUM, strategy.run(train_step, args=(real,)), axis=None)

    for epoch in range(options.epochs):
        losses = [distributed_train_step(real) for real in dist_dataset]
        of_generator, of_discriminator = np.mean(losses, axis=0)
        print(f"Epoch {epoch + 1}, generator {of_generator:.4f}, discriminator {of_discriminator:.4f}", flush=True)

    fake = generator.predict(np.random.default_rng(0).normal(size=(256, NOISE)).astype("float32"), verbose=0)
    print(f"Mean brightness: {images.mean():.3f} of the digits, {fake.mean():.3f} of the generator's")


if __name__ == "__main__":
    main()
