"""Networks for images, for any module with the interface of Keras: Keras 3 or `tf_keras`."""

from __future__ import annotations

from typing import Any

CLASSES = 10


def mnist_cnn(keras: Any) -> Any:
    """Return the network of TensorFlow's tutorial on custom loops: two convolutions with pooling."""
    layers = keras.layers
    return keras.Sequential(
        [
            layers.InputLayer((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(CLASSES),
        ]
    )


def resnet18(keras: Any) -> Any:
    """Return ResNet-18 for images of 64x64."""
    layers = keras.layers

    def convolved(x: Any, filters: int, size: int, strides: int = 1) -> Any:
        x = layers.Conv2D(filters, size, strides, padding="same", use_bias=False)(x)
        return layers.BatchNormalization()(x)

    inputs = keras.Input((64, 64, 3))
    x = layers.ReLU()(convolved(inputs, 64, 7, 2))
    x = layers.MaxPooling2D(3, 2, padding="same")(x)
    for filters in (64, 128, 256, 512):
        for block in range(2):
            strides = 2 if block == 0 and filters > 64 else 1
            shortcut = convolved(x, filters, 1, strides) if strides == 2 else x
            x = layers.ReLU()(convolved(x, filters, 3, strides))
            x = layers.ReLU()(layers.Add()([convolved(x, filters, 3), shortcut]))
    return keras.Model(inputs, layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(x)))


def resnet50(keras: Any) -> Any:
    """Return ResNet-50 for images of 64x64, as `keras.applications` has it."""
    return _application(keras, keras.applications.ResNet50, 64)


def mobilenet(keras: Any) -> Any:
    """Return MobileNetV2 for images of 96x96, as `keras.applications` has it."""
    return _application(keras, keras.applications.MobileNetV2, 96)


def _application(keras: Any, make: Any, size: int) -> Any:
    body = make(weights=None, include_top=False, input_shape=(size, size, 3), pooling="avg")
    return keras.Model(body.input, keras.layers.Dense(CLASSES)(body.output))


def unet(keras: Any) -> Any:
    """Return a U-Net that labels each pixel of an image of 64x64; it grows by transposed convolutions."""
    layers = keras.layers

    def twice(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same")(x)))
        return x

    inputs = keras.Input((64, 64, 3))
    x, skipped = inputs, []
    for filters in (32, 64, 128):
        x = twice(x, filters)
        skipped.append((filters, x))
        x = layers.MaxPooling2D()(x)
    x = twice(x, 256)
    for filters, skip in reversed(skipped):
        x = layers.Conv2DTranspose(filters, 3, 2, padding="same")(x)
        x = twice(layers.Concatenate()([x, skip]), filters)
    return keras.Model(inputs, layers.Conv2D(CLASSES, 1)(x))


def vit(keras: Any) -> Any:
    """Return a Vision Transformer for images of 32x32 in patches of 4x4: four blocks, 128 wide."""
    layers = keras.layers
    inputs = keras.Input((32, 32, 3))
    x = layers.Reshape((64, 128))(layers.Conv2D(128, 4, 4)(inputs))
    x = with_places(keras, 64, 128)(x)
    for _ in range(4):
        normal = layers.LayerNormalization(epsilon=1e-6)(x)
        x = layers.Add()([x, layers.MultiHeadAttention(4, 32)(normal, normal)])
        normal = layers.LayerNormalization(epsilon=1e-6)(x)
        x = layers.Add()([x, layers.Dense(128)(layers.Dense(256, activation="gelu")(normal))])
    x = layers.LayerNormalization(epsilon=1e-6)(x)
    return keras.Model(inputs, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(x)))


def with_places(keras: Any, length: int, width: int) -> Any:
    """Return a layer that adds a weight to each place of a sequence."""

    class Places(keras.layers.Layer):
        def build(self, input_shape: Any) -> None:
            self.places = self.add_weight(name="places", shape=(length, width), initializer="random_normal")

        def call(self, x: Any) -> Any:
            return x + self.places

    return Places()
