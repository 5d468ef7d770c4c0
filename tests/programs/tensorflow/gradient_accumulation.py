"""Gradients collected over several batches in variables, clipped by their norm, then applied at once."""

import numpy as np
import tensorflow as tf

ACCUMULATE = 4
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
random = np.random.default_rng(1)
x = random.normal(size=(96, 5)).astype("float32")
y = (x.sum(axis=1, keepdims=True) > 0).astype("float32")
batch_size = 8
dist = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size))

with strategy.scope():
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(8, activation="relu", input_shape=(5,)), tf.keras.layers.Dense(1)]
    )
    optimizer = tf.keras.optimizers.Adam(learning_rate=tf.keras.optimizers.schedules.ExponentialDecay(0.05, 10, 0.9))
    bce = tf.keras.losses.BinaryCrossentropy(from_logits=True, reduction=tf.keras.losses.Reduction.NONE)
    accumulated = [
        tf.Variable(tf.zeros_like(v), trainable=False, aggregation=tf.VariableAggregation.SUM)
        for v in model.trainable_variables
    ]


def accumulate_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.nn.compute_average_loss(bce(y, model(x, training=True)), global_batch_size=batch_size)
    gradients = tape.gradient(loss, model.trainable_variables)
    for total, gradient in zip(accumulated, gradients):
        total.assign_add(gradient / ACCUMULATE)
    return loss


def apply_step():
    replicas = tf.distribute.get_replica_context().num_replicas_in_sync
    gradients, norm = tf.clip_by_global_norm([total.read_value() for total in accumulated], 1.0)
    # apply_gradients sums over replicas, and each replica has the whole already
    optimizer.apply_gradients(zip([g / replicas for g in gradients], model.trainable_variables))
    for total in accumulated:
        total.assign(tf.zeros_like(total))
    return norm


@tf.function
def accumulate(x, y):
    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(accumulate_step, args=(x, y)), axis=None)


@tf.function
def apply():
    return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(apply_step), axis=None)


losses, norms = [], []
for epoch in range(6):
    for step, (features, labels) in enumerate(dist):
        losses.append(accumulate(features, labels).numpy())
        if (step + 1) % ACCUMULATE == 0:
            norms.append(float(apply()))
    print(f"epoch {epoch}: loss {np.mean(losses[-12:]):.3f}, norm {norms[-1]:.3f}")
print("updates", int(optimizer.iterations.numpy()), "left", max(float(tf.reduce_max(tf.abs(a))) for a in accumulated))
