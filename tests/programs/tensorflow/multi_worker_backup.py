"""A job that may die: BackupAndRestore and ModelCheckpoint in `fit`, so that run again it goes on where it was. Here
worker 1 dies once, in the middle of an epoch."""

import json
import os
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf

tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])
task_index = tf_config["task"]["index"]

options = tf.distribute.experimental.CommunicationOptions(
    implementation=tf.distribute.experimental.CommunicationImplementation.RING
)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
print("replicas: {}".format(strategy.num_replicas_in_sync))

per_worker_batch_size = 8
global_batch_size = per_worker_batch_size * num_workers
x = np.random.default_rng(0).normal(size=(100, 6)).astype("float32")
y = x.sum(axis=1, keepdims=True)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(global_batch_size)
data_options = tf.data.Options()
data_options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
dataset = dataset.with_options(data_options)

tf.keras.utils.set_random_seed(4)
with strategy.scope():
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(8, activation="relu", input_shape=(6,)), tf.keras.layers.Dense(1)]
    )
    model.compile(optimizer=tf.keras.optimizers.Adam(0.02), loss="mse", metrics=["mae"])


class Crash(tf.keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.epoch = 0
        print("begins at step", int(self.model.optimizer.iterations.numpy()))

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if task_index == 1 and self.epoch == 2 and batch == 3 and not tf.io.gfile.exists("/tmp/died"):
            with tf.io.gfile.GFile("/tmp/died", "w") as f:
                f.write("once")
            print("dies", flush=True)
            os._exit(7)


is_chief = task_index == 0
checkpoint_dir = "/tmp/checkpoints" if is_chief else "/tmp/checkpoints_of_others"
callbacks = [
    tf.keras.callbacks.BackupAndRestore(backup_dir="/tmp/backup"),
    tf.keras.callbacks.ModelCheckpoint(os.path.join(checkpoint_dir, "weights.{epoch:02d}.h5"), save_weights_only=True),
    Crash(),
]
history = model.fit(dataset, epochs=5, callbacks=callbacks, verbose=2 if is_chief else 0)
print("losses", " ".join("%.6f" % loss for loss in history.history["loss"]))
print("steps", int(model.optimizer.iterations.numpy()))
print("weights %.6f" % sum(float(tf.reduce_sum(tf.abs(w))) for w in model.trainable_variables))
sys.stdout.flush()
