"""Training and evaluation as two tasks: the trainer writes checkpoints, a SidecarEvaluator reads them as they come."""

import os

import numpy as np
import tensorflow as tf

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

x = np.random.default_rng(0).normal(size=(120, 4)).astype("float32")
y = (x[:, 0] * x[:, 1] > 0).astype("int32")
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(24)
checkpoint_dir = "/tmp/checkpoints"
log_dir = "/tmp/evaluation"

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def make_model():
    return tf.keras.Sequential(
        [tf.keras.layers.Dense(16, activation="relu", input_shape=(4,)), tf.keras.layers.Dense(2)]
    )


if resolver.task_type == "evaluator":
    model = make_model()
    model.compile(
        optimizer=tf.keras.optimizers.Adam(0.02),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    evaluator = tf.keras.utils.SidecarEvaluator(
        model=model,
        data=data,
        checkpoint_dir=checkpoint_dir,
        max_evaluations=4,
        callbacks=[tf.keras.callbacks.TensorBoard(log_dir=log_dir)],
    )
    evaluator.start()
    print("evaluated, loss %.6f" % model.evaluate(data, verbose=0)[0])
else:
    with strategy.scope():
        model = make_model()
        model.compile(
            optimizer=tf.keras.optimizers.Adam(0.02),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    manager = tf.train.CheckpointManager(checkpoint, checkpoint_dir, max_to_keep=4, checkpoint_name="ckpt")
    for epoch in range(4):
        model.fit(data, epochs=1, verbose=0)
        manager.save()
    print("trained, loss %.6f" % model.evaluate(data, verbose=0)[0])
    print("checkpoints", sorted(os.path.basename(path) for path in manager.checkpoints))
