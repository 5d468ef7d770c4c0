"""A1, rows 1-10 and 49-55: one worker, without TF_CONFIG; then the same under a strategy that finds no cluster."""

import os
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.pop("TF_CONFIG", None)
if "." not in sys.path:
    sys.path.insert(0, ".")

import mnist_setup
import tensorflow as tf

batch_size = 64
single_worker_dataset = mnist_setup.mnist_dataset(batch_size)
single_worker_model = mnist_setup.build_and_compile_cnn_model()
history = single_worker_model.fit(single_worker_dataset, epochs=3, steps_per_epoch=70)
print("history", ["%.4f" % loss for loss in history.history["loss"]])

# Load the model that two workers saved, and train it without a strategy.
model_path = "/tmp/keras-model"
loaded_model = tf.keras.models.load_model(model_path)
loaded_model.fit(single_worker_dataset, epochs=2, steps_per_epoch=20)

strategy = tf.distribute.MultiWorkerMirroredStrategy()
print("replicas", strategy.num_replicas_in_sync)

callbacks = [tf.keras.callbacks.BackupAndRestore(backup_dir="/tmp/backup")]
with strategy.scope():
    multi_worker_model = mnist_setup.build_and_compile_cnn_model()
multi_worker_model.fit(single_worker_dataset, epochs=3, steps_per_epoch=70, callbacks=callbacks)

callbacks = [tf.keras.callbacks.BackupAndRestore(backup_dir="/tmp/backup", save_freq=30)]
with strategy.scope():
    multi_worker_model = mnist_setup.build_and_compile_cnn_model()
multi_worker_model.fit(single_worker_dataset, epochs=3, steps_per_epoch=70, callbacks=callbacks)
print("left behind", tf.io.gfile.listdir("/tmp/backup") if tf.io.gfile.exists("/tmp/backup") else [])
