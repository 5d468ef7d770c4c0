"""Records written as `tf.train.Example`, read back, parsed and decoded in a `map`, and trained on by two devices."""

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
AUTOTUNE = tf.data.AUTOTUNE
(images, labels), _ = tf.keras.datasets.mnist.load_data()
images, labels = images[:630], labels[:630]


def _bytes_feature(value):
    """Returns a bytes_list from a string / byte."""
    if isinstance(value, type(tf.constant(0))):
        value = value.numpy()  # BytesList won't unpack a string from an EagerTensor.
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _float_feature(value):
    return tf.train.Feature(float_list=tf.train.FloatList(value=[value]))


def _int64_feature(value):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def serialize_example(image, label):
    feature = {
        "image_raw": _bytes_feature(image.tobytes()),
        "label": _int64_feature(int(label)),
        "mean": _float_feature(float(image.mean())),
        "depth": _int64_feature(1),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


tf.io.gfile.makedirs("records")
for shard in range(3):
    with tf.io.TFRecordWriter("records/digits-%05d-of-00003.tfrecord" % shard) as writer:
        for image, label in zip(images[shard::3], labels[shard::3]):
            writer.write(serialize_example(image, label))

feature_description = {
    "image_raw": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64, default_value=0),
    "mean": tf.io.FixedLenFeature([], tf.float32),
    "comment": tf.io.FixedLenFeature([], tf.string, default_value=""),
}


def parse(example_proto):
    example = tf.io.parse_single_example(example_proto, feature_description)
    image = tf.io.decode_raw(example["image_raw"], tf.uint8)
    image = tf.reshape(image, [28, 28, 1])
    image = tf.cast(image, tf.float32) * (1.0 / 255) - 0.5
    label = tf.cast(example["label"], tf.int32)
    return image, label


filenames = tf.io.gfile.glob("records/*.tfrecord")
print("files", len(filenames))

options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
options.experimental_deterministic = False

BATCH_SIZE = 32 * strategy.num_replicas_in_sync
dataset = (
    tf.data.Dataset.list_files("records/*.tfrecord", shuffle=False)
    .interleave(tf.data.TFRecordDataset, cycle_length=3, num_parallel_calls=AUTOTUNE)
    .shuffle(300)
    .map(parse, num_parallel_calls=AUTOTUNE)
    .batch(BATCH_SIZE, drop_remainder=True)
    .repeat()
    .prefetch(AUTOTUNE)
    .with_options(options)
)

for raw_record in tf.data.TFRecordDataset(filenames).take(1):
    example = tf.train.Example()
    example.ParseFromString(raw_record.numpy())
    first_label = example.features.feature["label"].int64_list.value[0]
    print("first label", first_label)

with strategy.scope():
    model = tf.keras.models.Sequential(
        [
            tf.keras.layers.Flatten(input_shape=(28, 28, 1)),
            tf.keras.layers.Dense(32, activation="relu", kernel_regularizer=tf.keras.regularizers.l2(1e-4)),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["sparse_categorical_accuracy"])

history = model.fit(dataset, epochs=4, steps_per_epoch=len(images) // BATCH_SIZE)

test = tf.data.TFRecordDataset(filenames).map(parse).batch(BATCH_SIZE)
rows = sum(1 for _ in tf.data.TFRecordDataset(filenames))
loss, accuracy = model.evaluate(test)
predictions = model.predict(test)
true = np.concatenate([label for _, label in test.as_numpy_iterator()])
print("rows", rows, "accuracy %.4f" % accuracy, "by hand %.4f" % np.mean(predictions.argmax(axis=1) == true))
