"""A WGAN with gradient penalty: a critic and a generator of images of 28x28, for any module with Keras's interface.

The networks of https://keras.io/examples/generative/wgan_gp/, narrower; the loop is each contender's own.
"""

from __future__ import annotations

from typing import Any

NOISE = 64

PENALTY = 10.0
"""Weight of the gradient penalty."""


def critic(keras: Any) -> Any:
    """Return the network that tells real images from generated ones."""
    layers = keras.layers
    return keras.Sequential(
        [
            layers.InputLayer((28, 28, 1)),
            layers.Conv2D(32, 5, 2, padding="same"),
            layers.LeakyReLU(0.2),
            layers.Conv2D(64, 5, 2, padding="same"),
            layers.LeakyReLU(0.2),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )


def generator(keras: Any) -> Any:
    """Return the network that makes images of noise."""
    layers = keras.layers
    return keras.Sequential(
        [
            layers.InputLayer((NOISE,)),
            layers.Dense(7 * 7 * 64, use_bias=False),
            layers.BatchNormalization(),
            layers.LeakyReLU(0.2),
            layers.Reshape((7, 7, 64)),
            layers.UpSampling2D(),
            layers.Conv2D(32, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.LeakyReLU(0.2),
            layers.UpSampling2D(),
            layers.Conv2D(1, 3, padding="same", activation="tanh"),
        ]
    )


def loop(tf: Any, keras: Any) -> Any:
    """Return the compiled model whose `train_step` is the example's, with a tape in a tape.

    Args:
        tf: TensorFlow, or Stratagem's names of it.
        keras: The Keras that belongs to it.
    """

    class WGAN(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.critic, self.generator = critic(keras), generator(keras)

        def compile(self) -> None:
            super().compile()
            self.critic_optimizer = keras.optimizers.Adam(2e-4, beta_1=0.5)
            self.generator_optimizer = keras.optimizers.Adam(2e-4, beta_1=0.5)

        def penalty(self, real: Any, made: Any) -> Any:
            share = tf.random.uniform((tf.shape(real)[0], 1, 1, 1))
            between = real + share * (made - real)
            with tf.GradientTape() as tape:
                tape.watch(between)
                score = self.critic(between, training=True)
            slope = tape.gradient(score, between)
            norm = tf.sqrt(tf.reduce_sum(tf.square(slope), axis=[1, 2, 3]) + 1e-12)
            return tf.reduce_mean((norm - 1.0) ** 2)

        def train_step(self, real: Any) -> Any:
            rows = tf.shape(real)[0]
            with tf.GradientTape() as tape:
                made = self.generator(tf.random.normal((rows, NOISE)), training=True)
                score = tf.reduce_mean(self.critic(made, training=True)) - tf.reduce_mean(
                    self.critic(real, training=True)
                )
                critic_loss = score + PENALTY * self.penalty(real, made)
            weights = self.critic.trainable_variables
            self.critic_optimizer.apply_gradients(zip(tape.gradient(critic_loss, weights), weights, strict=True))
            with tf.GradientTape() as tape:
                made = self.generator(tf.random.normal((rows, NOISE)), training=True)
                generator_loss = -tf.reduce_mean(self.critic(made, training=True))
            weights = self.generator.trainable_variables
            self.generator_optimizer.apply_gradients(zip(tape.gradient(generator_loss, weights), weights, strict=True))
            return {"loss": critic_loss, "generator_loss": generator_loss}

    model = WGAN()
    model.compile()
    return model
