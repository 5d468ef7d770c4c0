"""Whole epochs inside `tf.function`: `for` over a distributed dataset, `next` on its iterator, optional elements."""

import numpy as np
import tensorflow as tf

random = np.random.default_rng(0)
features = random.normal(size=(100, 3)).astype(np.float32)
targets = (features @ [[1.0], [-2.0], [0.5]] + 0.3).astype(np.float32)

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
GLOBAL_BATCH_SIZE = 16
dataset = tf.data.Dataset.from_tensor_slices((features, targets)).shuffle(100, seed=0).batch(GLOBAL_BATCH_SIZE)
dist_dataset = strategy.experimental_distribute_dataset(dataset)

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
    optimizer = tf.keras.optimizers.SGD(learning_rate=0.1)
    steps = tf.Variable(0, dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA, trainable=False)
    seen = tf.Variable(
        0, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM, trainable=False
    )


def train_step(inputs):
    x, y = inputs
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(model(x, training=True) - y)) / GLOBAL_BATCH_SIZE
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    steps.assign_add(1)
    seen.assign_add(tf.shape(x)[0])
    return loss


@tf.function
def train_epoch(dataset):
    total = 0.0
    num_batches = 0
    for inputs in dataset:
        per_replica_loss = strategy.run(train_step, args=(inputs,))
        total += strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_loss, axis=None)
        num_batches += 1
    return total / tf.cast(num_batches, tf.float32)


epoch_losses = []
for epoch in range(3):
    epoch_losses.append(float(train_epoch(dist_dataset)))
    tf.print("epoch", epoch, "loss", epoch_losses[-1])


@tf.function
def train_steps(iterator, steps):
    loss = tf.constant(0.0)
    for _ in tf.range(steps):
        loss = strategy.reduce("SUM", strategy.run(train_step, args=(next(iterator),)), axis=None)
    return loss


iterator = iter(dist_dataset)
last = train_steps(iterator, tf.constant(5))
print("after five more: {:.5f}".format(last.numpy()))

# What is left of the epoch, with get_next_as_optional.
rest = 0
while True:
    element = iterator.get_next_as_optional()
    if not element.has_value():
        break
    strategy.run(train_step, args=(element.get_value(),))
    rest += 1
print("rest", rest)

try:
    iterator.get_next()
except tf.errors.OutOfRangeError:
    print("end of the data")

print("steps", steps.numpy(), "rows", seen.numpy(), "iterations", optimizer.iterations.numpy())
kernel, bias = [v.numpy() for v in model.trainable_variables]
