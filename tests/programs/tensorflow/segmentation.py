"""A small U-Net, with a Dice loss and metrics of its own, augmentation in `map`, and a callback that looks at masks."""

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
SIZE = 16
OUTPUT_CLASSES = 3
BATCH_SIZE = 8


def make_images(count, seed):
    """A bright square (class 1) and a dark one (class 2) on a grey ground (class 0)."""
    random = np.random.default_rng(seed)
    images = np.full((count, SIZE, SIZE, 1), 127, "uint8")
    masks = np.zeros((count, SIZE, SIZE, 1), "uint8")
    for image, mask in zip(images, masks):
        for value, label in ((250, 1), (5, 2)):
            top, left = random.integers(0, SIZE - 6, 2)
            image[top : top + 6, left : left + 6] = value
            mask[top : top + 6, left : left + 6] = label
    return images, masks


def normalize(input_image, input_mask):
    input_image = tf.cast(input_image, tf.float32) / 127.5 - 1
    return input_image, input_mask


class Augment(tf.keras.layers.Layer):
    def __init__(self, seed=42):
        super().__init__()
        # both use the same seed, so they'll make the same random changes.
        self.augment_inputs = tf.keras.layers.RandomFlip(mode="horizontal", seed=seed)
        self.augment_labels = tf.keras.layers.RandomFlip(mode="horizontal", seed=seed)

    def call(self, inputs, labels):
        return self.augment_inputs(inputs), self.augment_labels(labels)


train_images = tf.data.Dataset.from_tensor_slices(make_images(44, 0)).map(
    normalize, num_parallel_calls=tf.data.AUTOTUNE
)
test_images = tf.data.Dataset.from_tensor_slices(make_images(12, 1)).map(normalize)

train_batches = train_images.cache().shuffle(44).batch(BATCH_SIZE).repeat().map(Augment()).prefetch(tf.data.AUTOTUNE)
test_batches = test_images.batch(BATCH_SIZE)


def unet_model(output_channels):
    inputs = tf.keras.layers.Input(shape=[SIZE, SIZE, 1])
    skips = []
    x = inputs
    for filters in (8, 16):
        x = tf.keras.layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
        skips.append(x)
        x = tf.keras.layers.MaxPooling2D()(x)
    x = tf.keras.layers.Conv2D(16, 3, padding="same", activation="relu")(x)
    for filters, skip in zip((16, 8), reversed(skips)):
        x = tf.keras.layers.UpSampling2D()(x)
        x = tf.keras.layers.Concatenate()([x, skip])
        x = tf.keras.layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    x = tf.keras.layers.Conv2D(output_channels, 1, padding="same")(x)
    return tf.keras.Model(inputs=inputs, outputs=x)


def dice_coefficient(y_true, y_pred, smooth=1e-6):
    y_true = tf.one_hot(tf.cast(tf.squeeze(y_true, -1), tf.int32), OUTPUT_CLASSES)
    intersection = tf.reduce_sum(y_true * y_pred, axis=[1, 2, 3])
    union = tf.reduce_sum(y_true, axis=[1, 2, 3]) + tf.reduce_sum(y_pred, axis=[1, 2, 3])
    return (2.0 * intersection + smooth) / (union + smooth)


cross_entropy = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def dice_and_cross_entropy(y_true, y_pred):
    per_pixel = tf.keras.losses.sparse_categorical_crossentropy(tf.squeeze(y_true, -1), y_pred, from_logits=True)
    return tf.reduce_mean(per_pixel, axis=[1, 2]) + 1.0 - dice_coefficient(y_true, tf.nn.softmax(y_pred))


class MaskIoU(tf.keras.metrics.MeanIoU):
    def update_state(self, y_true, y_pred, sample_weight=None):
        y_pred = tf.argmax(y_pred, axis=-1)
        return super().update_state(y_true, y_pred, sample_weight)


class Dice(tf.keras.metrics.Metric):
    def __init__(self, name="dice", **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        values = dice_coefficient(y_true, tf.nn.softmax(y_pred))
        self.total.assign_add(tf.reduce_sum(values))
        self.count.assign_add(tf.cast(tf.size(values), tf.float32))

    def result(self):
        return tf.math.divide_no_nan(self.total, self.count)

    def reset_state(self):
        self.total.assign(0.0)
        self.count.assign(0.0)


with strategy.scope():
    model = unet_model(OUTPUT_CLASSES)
    model.compile(
        optimizer=tf.keras.optimizers.Adam(0.02),
        loss=dice_and_cross_entropy,
        metrics=["accuracy", MaskIoU(num_classes=OUTPUT_CLASSES, name="iou"), Dice()],
    )


def create_mask(pred_mask):
    pred_mask = tf.math.argmax(pred_mask, axis=-1)
    pred_mask = pred_mask[..., tf.newaxis]
    return pred_mask[0]


masks_seen = []


class DisplayCallback(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        for image, mask in test_batches.take(1):
            predicted = create_mask(self.model.predict(image, verbose=0))
            masks_seen.append(np.mean(predicted.numpy() == mask[0].numpy()))
        print("\nSample Prediction after epoch {}: {:.0%} of the pixels\n".format(epoch + 1, masks_seen[-1]))


model_history = model.fit(
    train_batches,
    epochs=8,
    steps_per_epoch=6,
    validation_steps=2,
    validation_data=test_batches,
    callbacks=[DisplayCallback()],
)

evaluation = model.evaluate(test_batches, return_dict=True)
# The same numbers by hand, from all predictions.
predicted = np.concatenate([model.predict(image, verbose=0).argmax(-1) for image, _ in test_batches])
true = np.concatenate([mask.numpy()[..., 0] for _, mask in test_batches])
by_hand = np.mean(
    [((predicted == c) & (true == c)).sum() / ((predicted == c) | (true == c)).sum() for c in range(OUTPUT_CLASSES)]
)
print("IoU %.4f, by hand %.4f" % (evaluation["iou"], by_hand))
