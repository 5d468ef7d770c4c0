"""Two networks, two optimizers, one custom loop: a DCGAN on two devices."""

import os

import numpy as np
import tensorflow as tf
from tensorflow.keras import layers

(train_images, train_labels), (_, _) = tf.keras.datasets.mnist.load_data()
train_images = train_images[:250].reshape(-1, 28, 28, 1).astype("float32")
train_images = (train_images - 127.5) / 127.5  # Normalize the images to [-1, 1]

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
print("Number of devices: {}".format(strategy.num_replicas_in_sync))

BATCH_SIZE = 32 * strategy.num_replicas_in_sync
EPOCHS = 4
noise_dim = 16
num_examples_to_generate = 6

train_dataset = tf.data.Dataset.from_tensor_slices(train_images).shuffle(250, seed=3).batch(BATCH_SIZE)
train_dist_dataset = strategy.experimental_distribute_dataset(train_dataset)


def make_generator_model():
    model = tf.keras.Sequential()
    model.add(layers.Dense(7 * 7 * 16, use_bias=False, input_shape=(noise_dim,)))
    model.add(layers.BatchNormalization())
    model.add(layers.LeakyReLU())

    model.add(layers.Reshape((7, 7, 16)))
    assert model.output_shape == (None, 7, 7, 16)  # Note: None is the batch size

    model.add(layers.Conv2DTranspose(8, (5, 5), strides=(2, 2), padding="same", use_bias=False))
    assert model.output_shape == (None, 14, 14, 8)
    model.add(layers.BatchNormalization())
    model.add(layers.LeakyReLU())

    model.add(layers.Conv2DTranspose(1, (5, 5), strides=(2, 2), padding="same", use_bias=False, activation="tanh"))
    assert model.output_shape == (None, 28, 28, 1)
    return model


def make_discriminator_model():
    model = tf.keras.Sequential()
    model.add(layers.Conv2D(8, (5, 5), strides=(2, 2), padding="same", input_shape=[28, 28, 1]))
    model.add(layers.LeakyReLU())
    model.add(layers.Dropout(0.3))
    model.add(layers.Conv2D(16, (5, 5), strides=(2, 2), padding="same"))
    model.add(layers.LeakyReLU())
    model.add(layers.Dropout(0.3))
    model.add(layers.Flatten())
    model.add(layers.Dense(1))
    return model


with strategy.scope():
    generator = make_generator_model()
    discriminator = make_discriminator_model()
    generator_optimizer = tf.keras.optimizers.Adam(1e-3, beta_1=0.5)
    discriminator_optimizer = tf.keras.optimizers.Adam(1e-3, beta_1=0.5)
    cross_entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True, reduction=tf.keras.losses.Reduction.NONE)
    gen_metric = tf.keras.metrics.Mean("generator_loss", dtype=tf.float32)


def discriminator_loss(real_output, fake_output):
    real_loss = cross_entropy(tf.ones_like(real_output), real_output)
    fake_loss = cross_entropy(tf.zeros_like(fake_output), fake_output)
    return tf.nn.compute_average_loss(real_loss + fake_loss, global_batch_size=BATCH_SIZE)


def generator_loss(fake_output):
    loss = cross_entropy(tf.ones_like(fake_output), fake_output)
    gen_metric.update_state(loss)
    return tf.reduce_sum(loss) * (1.0 / BATCH_SIZE)


checkpoint_prefix = os.path.join("training_checkpoints", "ckpt")
checkpoint = tf.train.Checkpoint(
    generator_optimizer=generator_optimizer,
    discriminator_optimizer=discriminator_optimizer,
    generator=generator,
    discriminator=discriminator,
)

# You will reuse this seed over time.
seed = tf.random.normal([num_examples_to_generate, noise_dim])


def train_step(images):
    noise = tf.random.normal([tf.shape(images)[0], noise_dim])

    with tf.GradientTape() as gen_tape, tf.GradientTape() as disc_tape:
        generated_images = generator(noise, training=True)

        real_output = discriminator(images, training=True)
        fake_output = discriminator(generated_images, training=True)

        gen_loss = generator_loss(fake_output)
        disc_loss = discriminator_loss(real_output, fake_output)

    gradients_of_generator = gen_tape.gradient(gen_loss, generator.trainable_variables)
    gradients_of_discriminator = disc_tape.gradient(disc_loss, discriminator.trainable_variables)

    generator_optimizer.apply_gradients(zip(gradients_of_generator, generator.trainable_variables))
    discriminator_optimizer.apply_gradients(zip(gradients_of_discriminator, discriminator.trainable_variables))
    return gen_loss, disc_loss


@tf.function
def distributed_train_step(images):
    gen_loss, disc_loss = strategy.run(train_step, args=(images,))
    return (
        strategy.reduce(tf.distribute.ReduceOp.SUM, gen_loss, axis=None),
        strategy.reduce(tf.distribute.ReduceOp.SUM, disc_loss, axis=None),
    )


history = []
for epoch in range(EPOCHS):
    total_gen, total_disc, n = 0.0, 0.0, 0
    for image_batch in train_dist_dataset:
        gen_loss, disc_loss = distributed_train_step(image_batch)
        total_gen += gen_loss
        total_disc += disc_loss
        n += 1
    history.append((total_gen.numpy() / n, total_disc.numpy() / n))
    print("Epoch %d, gen %.4f, disc %.4f" % (epoch + 1, history[-1][0], history[-1][1]))
    if (epoch + 1) % 2 == 0:
        checkpoint.save(file_prefix=checkpoint_prefix)

generated = generator(seed, training=False)
generated_images = generated[:, :, :, 0] * 127.5 + 127.5
print("generated", generated_images.shape, generated_images.numpy().dtype)

checkpoint.restore(tf.train.latest_checkpoint("training_checkpoints"))
restored_images = generator(seed, training=False)[:, :, :, 0] * 127.5 + 127.5
difference = float(np.abs(restored_images.numpy() - generated_images.numpy()).max())
