"""Four networks and four optimizers under one persistent tape: a small CycleGAN."""

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
LAMBDA = 10
BATCH = 4
random = np.random.default_rng(0)
light = random.uniform(0.2, 1.0, (20, 8, 8, 1)).astype("float32")
dark = random.uniform(-1.0, -0.2, (20, 8, 8, 1)).astype("float32")


def augment(image):
    image = tf.image.random_flip_left_right(image)
    return tf.image.resize(image, [8, 8], method=tf.image.ResizeMethod.NEAREST_NEIGHBOR)


train_a = tf.data.Dataset.from_tensor_slices(light).map(augment).shuffle(20).batch(BATCH)
train_b = tf.data.Dataset.from_tensor_slices(dark).map(augment).shuffle(20).batch(BATCH)
train = strategy.experimental_distribute_dataset(tf.data.Dataset.zip((train_a, train_b)))


class InstanceNormalization(tf.keras.layers.Layer):
    def __init__(self, epsilon=1e-5):
        super(InstanceNormalization, self).__init__()
        self.epsilon = epsilon

    def build(self, input_shape):
        self.scale = self.add_weight(
            name="scale", shape=input_shape[-1:], initializer=tf.random_normal_initializer(1.0, 0.02), trainable=True
        )
        self.offset = self.add_weight(name="offset", shape=input_shape[-1:], initializer="zeros", trainable=True)

    def call(self, x):
        mean, variance = tf.nn.moments(x, axes=[1, 2], keepdims=True)
        inv = tf.math.rsqrt(variance + self.epsilon)
        normalized = (x - mean) * inv
        return self.scale * normalized + self.offset


def make_generator():
    return tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(4, 3, padding="same", input_shape=(8, 8, 1)),
            InstanceNormalization(),
            tf.keras.layers.ReLU(),
            tf.keras.layers.Conv2D(1, 3, padding="same", activation="tanh"),
        ]
    )


def make_discriminator():
    return tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(4, 3, strides=2, padding="same", input_shape=(8, 8, 1)),
            tf.keras.layers.LeakyReLU(),
            tf.keras.layers.Conv2D(1, 3, padding="same"),
        ]
    )


with strategy.scope():
    generator_g, generator_f = make_generator(), make_generator()
    discriminator_x, discriminator_y = make_discriminator(), make_discriminator()
    optimizers = [tf.keras.optimizers.Adam(5e-3, beta_1=0.5) for _ in range(4)]
    loss_obj = tf.keras.losses.BinaryCrossentropy(from_logits=True, reduction=tf.keras.losses.Reduction.NONE)


def mean_over_batch(per_pixel):
    return tf.reduce_sum(tf.reduce_mean(per_pixel, axis=[1, 2])) / BATCH


def discriminator_loss(real, generated):
    return 0.5 * mean_over_batch(loss_obj(tf.ones_like(real), real) + loss_obj(tf.zeros_like(generated), generated))


def generator_loss(generated):
    return mean_over_batch(loss_obj(tf.ones_like(generated), generated))


def l1(a, b):
    return mean_over_batch(tf.squeeze(tf.abs(a - b), -1))


def train_step(inputs):
    real_x, real_y = inputs
    with tf.GradientTape(persistent=True) as tape:
        fake_y = generator_g(real_x, training=True)
        cycled_x = generator_f(fake_y, training=True)
        fake_x = generator_f(real_y, training=True)
        cycled_y = generator_g(fake_x, training=True)

        same_x = generator_f(real_x, training=True)
        same_y = generator_g(real_y, training=True)

        disc_real_x = discriminator_x(real_x, training=True)
        disc_real_y = discriminator_y(real_y, training=True)
        disc_fake_x = discriminator_x(fake_x, training=True)
        disc_fake_y = discriminator_y(fake_y, training=True)

        total_cycle_loss = LAMBDA * (l1(real_x, cycled_x) + l1(real_y, cycled_y))
        total_gen_g_loss = generator_loss(disc_fake_y) + total_cycle_loss + LAMBDA * 0.5 * l1(real_y, same_y)
        total_gen_f_loss = generator_loss(disc_fake_x) + total_cycle_loss + LAMBDA * 0.5 * l1(real_x, same_x)
        disc_x_loss = discriminator_loss(disc_real_x, disc_fake_x)
        disc_y_loss = discriminator_loss(disc_real_y, disc_fake_y)

    for loss, network, optimizer in (
        (total_gen_g_loss, generator_g, optimizers[0]),
        (total_gen_f_loss, generator_f, optimizers[1]),
        (disc_x_loss, discriminator_x, optimizers[2]),
        (disc_y_loss, discriminator_y, optimizers[3]),
    ):
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables))
    return total_cycle_loss


@tf.function
def distributed_train_step(inputs):
    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(train_step, args=(inputs,)), axis=None)


manager = tf.train.CheckpointManager(
    tf.train.Checkpoint(generator_g=generator_g, generator_f=generator_f, optimizer=optimizers[0]),
    "./checkpoints/train",
    max_to_keep=2,
)
if manager.latest_checkpoint:
    print("Latest checkpoint restored!!")

cycle_losses = []
for epoch in range(8):
    n = 0
    for batch in train:
        loss = distributed_train_step(batch)
        n += 1
    cycle_losses.append(float(loss))
    path = manager.save()
    print("Saving checkpoint for epoch {} at {}: cycle loss {:.3f}".format(epoch + 1, path, loss))
print("kept", len(manager.checkpoints))
