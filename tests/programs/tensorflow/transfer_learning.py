"""A base trained on some digits, frozen under a new head, then thawed and tuned with a tenth of the learning rate."""

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

(x, y), _ = tf.keras.datasets.mnist.load_data()
x = x[:1200, ..., np.newaxis] / 255.0
y = y[:1200]
old, new = y < 5, y >= 5

base_learning_rate = 0.002


def make_base():
    return tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(8, 3, strides=2, activation="relu", input_shape=(28, 28, 1)),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
        ],
        name="base",
    )


base = make_base()
pretrained = tf.keras.Sequential([base, tf.keras.layers.Flatten(), tf.keras.layers.Dense(5)])
pretrained.compile(
    tf.keras.optimizers.Adam(0.01), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), ["accuracy"]
)
pretrained.fit(x[old], y[old], epochs=3, batch_size=50, verbose=2)
base.save_weights("base.h5")

with strategy.scope():
    base_model = make_base()
    base_model.load_weights("base.h5")
    base_model.trainable = False

    inputs = tf.keras.Input(shape=(28, 28, 1))
    h = base_model(inputs, training=False)
    h = tf.keras.layers.Flatten()(h)
    h = tf.keras.layers.Dropout(0.1)(h)
    outputs = tf.keras.layers.Dense(5)(h)
    model = tf.keras.Model(inputs, outputs)
    model.compile(
        optimizer=tf.keras.optimizers.Adam(learning_rate=base_learning_rate),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
model.summary()
print("trainable:", len(model.trainable_variables))

frozen = [w.numpy() for w in base_model.weights]
loss0, accuracy0 = model.evaluate(x[new], y[new] - 5, verbose=0)
print("initial loss: {:.2f}".format(loss0))
history = model.fit(x[new], y[new] - 5, epochs=3, batch_size=50)
moved_while_frozen = max(np.abs(w.numpy() - f).max() for w, f in zip(base_model.weights, frozen))

# Fine tuning: un-freeze the top layers of the model
base_model.trainable = True
for layer in base_model.layers[:1]:
    layer.trainable = False

with strategy.scope():
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.RMSprop(learning_rate=base_learning_rate / 10),
        metrics=["accuracy"],
    )
print("trainable:", len(model.trainable_variables))

history_fine = model.fit(x[new], y[new] - 5, epochs=6, initial_epoch=history.epoch[-1] + 1, batch_size=50)
moved = [np.abs(w.numpy() - f).max() for w, f in zip(base_model.weights, frozen)]
acc = history.history["accuracy"] + history_fine.history["accuracy"]
print("accuracy", ", ".join("%.3f" % a for a in acc))
