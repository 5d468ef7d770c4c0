"""A denoising autoencoder: a subclassed model with an encoder and a decoder, trained on (noisy, clean) pairs."""

import numpy as np
import tensorflow as tf
from tensorflow.keras import layers, losses
from tensorflow.keras.models import Model

(x_train, _), (x_test, _) = tf.keras.datasets.mnist.load_data()
x_train = x_train[:500].astype("float32") / 255.0
x_test = x_test[:100].astype("float32") / 255.0
x_train = x_train[..., tf.newaxis]
x_test = x_test[..., tf.newaxis]

noise_factor = 0.2
x_train_noisy = x_train + noise_factor * tf.random.normal(shape=x_train.shape)
x_test_noisy = x_test + noise_factor * tf.random.normal(shape=x_test.shape)

x_train_noisy = tf.clip_by_value(x_train_noisy, clip_value_min=0.0, clip_value_max=1.0)
x_test_noisy = tf.clip_by_value(x_test_noisy, clip_value_min=0.0, clip_value_max=1.0)


class Denoise(Model):
    def __init__(self):
        super(Denoise, self).__init__()
        self.encoder = tf.keras.Sequential(
            [
                layers.Input(shape=(28, 28, 1)),
                layers.Conv2D(8, (3, 3), activation="relu", padding="same", strides=2),
                layers.Conv2D(4, (3, 3), activation="relu", padding="same", strides=2),
            ]
        )
        self.decoder = tf.keras.Sequential(
            [
                layers.Conv2DTranspose(4, kernel_size=3, strides=2, activation="relu", padding="same"),
                layers.Conv2DTranspose(8, kernel_size=3, strides=2, activation="relu", padding="same"),
                layers.Conv2D(1, kernel_size=(3, 3), activation="sigmoid", padding="same"),
            ]
        )

    def call(self, x):
        encoded = self.encoder(x)
        decoded = self.decoder(encoded)
        return decoded


strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
with strategy.scope():
    autoencoder = Denoise()
    autoencoder.compile(optimizer=tf.keras.optimizers.Adam(0.005), loss=losses.MeanSquaredError())

history = autoencoder.fit(
    x_train_noisy, x_train, epochs=3, batch_size=24, shuffle=True, validation_data=(x_test_noisy, x_test)
)
autoencoder.encoder.summary()

encoded_imgs = autoencoder.encoder(x_test_noisy).numpy()
decoded_imgs = autoencoder.decoder(encoded_imgs).numpy()
error = np.mean((decoded_imgs - x_test) ** 2)
print("error of the blank image %.4f, of the decoded %.4f" % (np.mean(x_test**2), error))
