"""Regression on a table: a normalisation layer adapted to the data, `history.history`, a best checkpoint, a prediction."""

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

random = np.random.default_rng(0)
columns = ["Cylinders", "Displacement", "Horsepower", "Weight"]
features = random.normal([5.5, 190, 100, 3000], [1.7, 100, 40, 850], (331, 4)).astype("float32")
mpg = 23 - 3 * (features[:, 3] - 3000) / 850 - 1.5 * (features[:, 2] - 100) / 40 + random.normal(0, 0.5, 331)
train_features, test_features = features[:265], features[265:]
train_labels, test_labels = mpg[:265], mpg[265:]

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    normalizer = tf.keras.layers.Normalization(axis=-1)
    normalizer.adapt(np.array(train_features))
print(normalizer.mean.numpy())

first = np.array(train_features[:1])
with np.printoptions(precision=2, suppress=True):
    print("First example:", first)
    print("Normalized:", normalizer(first).numpy())


def build_and_compile_model(norm):
    model = keras.Sequential(
        [norm, layers.Dense(16, activation="relu"), layers.Dense(16, activation="relu"), layers.Dense(1)]
    )
    model.compile(
        loss="mean_absolute_error",
        optimizer=tf.keras.optimizers.Adam(0.02),
        metrics=["mse", tf.keras.metrics.RootMeanSquaredError(name="rmse")],
    )
    return model


with strategy.scope():
    dnn_model = build_and_compile_model(normalizer)

untrained = dnn_model.predict(train_features[:10])

history = dnn_model.fit(
    train_features,
    train_labels,
    validation_split=0.2,
    verbose=0,
    epochs=25,
    callbacks=[tf.keras.callbacks.ModelCheckpoint("best", monitor="val_loss", save_best_only=True)],
)
hist = history.history
print("val_loss %.3f -> %.3f" % (hist["val_loss"][0], hist["val_loss"][-1]))
dnn_model.summary()

test_results = dnn_model.evaluate(test_features, test_labels, verbose=0)
test_predictions = dnn_model.predict(test_features).flatten()
error = test_predictions - test_labels
by_hand = np.mean(np.abs(error))

reloaded = tf.keras.models.load_model("best")
best = reloaded.evaluate(test_features, test_labels, verbose=0)
print("mean absolute error", test_results[0], "best", best[0])
