"""Words to numbers, an embedding and an LSTM: the sentiment of sentences."""

import re
import string

import numpy as np
import tensorflow as tf
from tensorflow.keras import layers, losses
from tensorflow.keras.layers import TextVectorization

random = np.random.default_rng(0)
good = ["great", "wonderful", "loved", "best", "superb"]
bad = ["awful", "boring", "hated", "worst", "terrible"]
filler = ["the", "movie", "was", "plot", "actors", "and", "a", "film", "it", "very"]


def sentence(label):
    words = list(random.choice(filler, 8)) + list(random.choice(good if label else bad, 2))
    random.shuffle(words)
    return " ".join(words).capitalize() + ".<br />"


labels = np.array([i % 2 for i in range(250)], dtype="int32")
texts = np.array([sentence(label) for label in labels])

batch_size = 32
raw_train_ds = tf.data.Dataset.from_tensor_slices((texts[:200], labels[:200])).shuffle(200, seed=1).batch(batch_size)
raw_test_ds = tf.data.Dataset.from_tensor_slices((texts[200:], labels[200:])).batch(batch_size)


def custom_standardization(input_data):
    lowercase = tf.strings.lower(input_data)
    stripped_html = tf.strings.regex_replace(lowercase, "<br />", " ")
    return tf.strings.regex_replace(stripped_html, "[%s]" % re.escape(string.punctuation), "")


max_features = 100
sequence_length = 12

vectorize_layer = TextVectorization(
    standardize=custom_standardization,
    max_tokens=max_features,
    output_mode="int",
    output_sequence_length=sequence_length,
)

# Make a text-only dataset (without labels), then call adapt
train_text = raw_train_ds.map(lambda x, y: x)
vectorize_layer.adapt(train_text)
print("Vocabulary size: {}".format(len(vectorize_layer.get_vocabulary())))


def vectorize_text(text, label):
    text = tf.expand_dims(text, -1)
    return vectorize_layer(text), label


AUTOTUNE = tf.data.AUTOTUNE
train_ds = raw_train_ds.map(vectorize_text).cache().prefetch(buffer_size=AUTOTUNE)
test_ds = raw_test_ds.map(vectorize_text).cache().prefetch(buffer_size=AUTOTUNE)

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    model = tf.keras.Sequential(
        [
            layers.Embedding(max_features + 1, 16, mask_zero=True),
            layers.Bidirectional(layers.LSTM(8)),
            layers.Dropout(0.2),
            layers.Dense(1),
        ]
    )
    model.compile(
        loss=losses.BinaryCrossentropy(from_logits=True),
        optimizer=tf.keras.optimizers.Adam(0.02),
        metrics=[tf.keras.metrics.BinaryAccuracy(threshold=0.0, name="accuracy")],
    )

history = model.fit(train_ds, validation_data=test_ds, epochs=4)
loss, accuracy = model.evaluate(test_ds)
print("Loss: ", loss)
print(f"Accuracy: {accuracy:.3f}")

examples = tf.constant(["The movie was great and superb!", "a terrible, boring film"])
scores = tf.sigmoid(model.predict(vectorize_layer(tf.expand_dims(examples, -1))))
for text, score in zip(["good", "bad"], scores.numpy()):
    print(f"{text}: {score[0]:.2f}")
