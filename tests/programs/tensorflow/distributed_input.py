"""What the official guide "Distributed input" shows: element specs, input functions, per-worker batches, options."""

import numpy as np
import tensorflow as tf

global_batch_size = 16
mirrored_strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

# from_tensors + repeat + batch
dataset = tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat(100).batch(global_batch_size)
dist_dataset = mirrored_strategy.experimental_distribute_dataset(dataset)


@tf.function
def train_step(inputs):
    features, labels = inputs
    return labels - 0.3 * features


sums = []
for x in dist_dataset:
    losses = mirrored_strategy.run(train_step, args=(x,))
    sums.append(mirrored_strategy.reduce("sum", losses, axis=0).numpy().item())
print("sums", ["%.1f" % s for s in sums])


# distribute_datasets_from_function
def dataset_fn(input_context):
    batch_size = input_context.get_per_replica_batch_size(global_batch_size)
    dataset = tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat(64).batch(16)
    dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    dataset = dataset.unbatch().batch(batch_size)
    dataset = dataset.prefetch(2)  # This prefetches 2 batches per device.
    return dataset


from_function = mirrored_strategy.distribute_datasets_from_function(dataset_fn)
per_replica_shapes = []
for x, y in from_function:
    per_replica_shapes.append([tuple(v.shape) for v in mirrored_strategy.experimental_local_results(x)])
print("per replica", per_replica_shapes[0], len(per_replica_shapes))

# element_spec as the signature of a function of an iterator
iterator = iter(dist_dataset)


@tf.function(input_signature=[iterator.element_spec])
def step_with_signature(inputs):
    return mirrored_strategy.run(lambda inputs: 2 * inputs[0], args=(inputs,))


results = [step_with_signature(next(iterator)) for _ in range(7)]
print("last", [int(v.shape[0]) for v in mirrored_strategy.experimental_local_results(results[-1])])


# Dictionaries of a generator, zipped with numbers
def generator():
    for i in range(11):
        yield {"id": i, "row": np.full(3, i, np.float32)}


from_generator = tf.data.Dataset.from_generator(
    generator,
    output_signature={"id": tf.TensorSpec((), tf.int32), "row": tf.TensorSpec((3,), tf.float32)},
)
pairs = tf.data.Dataset.zip((from_generator, tf.data.Dataset.range(11))).padded_batch(4)
total, ids = 0.0, []
for element, number in mirrored_strategy.experimental_distribute_dataset(pairs):
    per_replica = mirrored_strategy.run(
        lambda e, n: tf.reduce_sum(e["row"]) + tf.cast(n[0], tf.float32), (element, number)
    )
    total += mirrored_strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)
    for part in mirrored_strategy.experimental_local_results(element["id"]):
        ids.extend(part.numpy().tolist())
print("total %.1f ids %s" % (total, ids))

# Options
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
ranged = tf.data.Dataset.range(10).filter(lambda i: i % 2 == 0).flat_map(lambda i: tf.data.Dataset.range(i).batch(4))
parts = [part.tolist() for part in ranged.take(4).with_options(options).as_numpy_iterator()]

input_options = tf.distribute.InputOptions(
    experimental_fetch_to_device=True,
    experimental_replication_mode=tf.distribute.InputReplicationMode.PER_WORKER,
    experimental_place_dataset_on_device=False,
)
with_options = mirrored_strategy.experimental_distribute_dataset(tf.data.Dataset.range(4).batch(4), input_options)
local = mirrored_strategy.experimental_local_results(next(iter(with_options)))
print("with options", [v.numpy().tolist() for v in local])
