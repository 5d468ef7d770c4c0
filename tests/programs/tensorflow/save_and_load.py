"""The official "Save and load a model using a distribution strategy": every way in, every way out."""

import numpy as np
import tensorflow as tf

mirrored_strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def get_data():
    (x, y), (x_test, y_test) = tf.keras.datasets.mnist.load_data()

    BUFFER_SIZE = 1000
    BATCH_SIZE_PER_REPLICA = 32
    BATCH_SIZE = BATCH_SIZE_PER_REPLICA * mirrored_strategy.num_replicas_in_sync

    def scale(image, label):
        image = tf.cast(image, tf.float32)
        image /= 255
        return tf.expand_dims(image, -1), label

    train_dataset = tf.data.Dataset.from_tensor_slices((x[:300], y[:300]))
    eval_dataset = tf.data.Dataset.from_tensor_slices((x_test[:90], y_test[:90]))
    train_dataset = train_dataset.map(scale).cache().shuffle(BUFFER_SIZE).batch(BATCH_SIZE)
    eval_dataset = eval_dataset.map(scale).batch(BATCH_SIZE)
    return train_dataset, eval_dataset


def get_model():
    with mirrored_strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Flatten(input_shape=(28, 28, 1)),
                tf.keras.layers.Dense(16, activation="relu"),
                tf.keras.layers.Dense(10),
            ]
        )
        model.compile(
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            optimizer=tf.keras.optimizers.Adam(),
            metrics=[tf.metrics.SparseCategoricalAccuracy()],
        )
        return model


model = get_model()
train_dataset, eval_dataset = get_data()
model.fit(train_dataset, epochs=2)
trained = model.evaluate(eval_dataset, verbose=0)

keras_model_path = "/tmp/keras_save"
model.save(keras_model_path)

restored_keras_model = tf.keras.models.load_model(keras_model_path)
alone = restored_keras_model.evaluate(eval_dataset, verbose=0)
restored_keras_model.fit(train_dataset, epochs=1)

another_strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
with another_strategy.scope():
    restored_keras_model_ds = tf.keras.models.load_model(keras_model_path)
    under_another = restored_keras_model_ds.evaluate(eval_dataset, verbose=0)
    restored_keras_model_ds.fit(train_dataset, epochs=1)

# The lower level API
saved_model_path = "/tmp/tf_save"
tf.saved_model.save(model, saved_model_path)

h5_path = "/tmp/model.h5"
model.save(h5_path)
from_h5 = tf.keras.models.load_model(h5_path).predict(eval_dataset, verbose=0)

model.save_weights("/tmp/weights/w")
with another_strategy.scope():
    cold = tf.keras.models.clone_model(model)
cold.load_weights("/tmp/weights/w")
from_weights = cold.predict(eval_dataset, verbose=0)

# A subclassed model keeps its weights in a checkpoint.


class SubclassedModel(tf.keras.Model):
    """Example model defined by subclassing `tf.keras.Model`."""

    output_name = "output_layer"

    def __init__(self):
        super(SubclassedModel, self).__init__()
        self._dense_layer = tf.keras.layers.Dense(5, dtype=tf.dtypes.float32, name=self.output_name)

    def call(self, inputs):
        return self._dense_layer(inputs)


with mirrored_strategy.scope():
    my_model = SubclassedModel()
x = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
before = my_model(x).numpy()
checkpoint_path = tf.train.Checkpoint(model=my_model).save("/tmp/subclassed/ckpt")
fresh = SubclassedModel()
fresh(x)
status = tf.train.Checkpoint(model=fresh).restore(checkpoint_path)
status.assert_existing_objects_matched()
after = fresh(x).numpy()

expected = model.predict(eval_dataset, verbose=0)
print("evaluations", trained, alone, under_another)
