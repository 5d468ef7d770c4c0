"""Predictions by hand on all devices: uneven batches, `gather`, per-replica values, and a confusion matrix."""

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])
x = np.random.default_rng(0).normal(size=(43, 6)).astype("float32")
y = (x[:, 0] > 0).astype("int32")

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="tanh"), tf.keras.layers.Dense(2)])
model.build((None, 6))

dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)
dist_dataset = strategy.experimental_distribute_dataset(dataset)
print(dist_dataset.element_spec)


@tf.function
def predict(inputs):
    def predict_fn(inputs):
        features, labels = inputs
        logits = model(features, training=False)
        return tf.nn.softmax(logits), labels

    return strategy.run(predict_fn, args=(inputs,))


probabilities, labels, sizes = [], [], []
for batch in dist_dataset:
    per_replica, per_replica_labels = predict(batch)
    sizes.append([int(part.shape[0]) for part in strategy.experimental_local_results(per_replica)])
    probabilities.append(strategy.gather(per_replica, axis=0).numpy())
    labels.append(strategy.gather(per_replica_labels, axis=0).numpy())
probabilities = np.concatenate(probabilities)
labels = np.concatenate(labels)
print("shares of each batch", sizes)

by_keras = tf.nn.softmax(model.predict(x, batch_size=10, verbose=0)).numpy()
alone = tf.nn.softmax(model(x)).numpy()

matrix = tf.math.confusion_matrix(labels, np.argmax(probabilities, axis=1), num_classes=2)
print(matrix.numpy())

mean = strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(lambda: tf.constant([1.0, 2.0])), axis=None)
print("mean %s" % mean.numpy())


def value_fn(ctx):
    return tf.constant(float(ctx.replica_id_in_sync_group))


distributed_values = strategy.experimental_distribute_values_from_function(value_fn)


@tf.function
def replica_fn(value):
    context = tf.distribute.get_replica_context()
    total = context.all_reduce(tf.distribute.ReduceOp.SUM, value)
    return total * 10 + tf.cast(context.replica_id_in_sync_group, tf.float32)


totals = [
    float(value) for value in strategy.experimental_local_results(strategy.run(replica_fn, (distributed_values,)))
]
