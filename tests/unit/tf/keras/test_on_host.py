"""Models that look up text, in `fit` and its siblings: numbers of tf-keras 2.21, with and without a strategy."""

from __future__ import annotations

import contextlib
import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import InputError, UsageError

TEXTS = ["The cat sat.", "a dog", "cat dog cat dog!", "the the end", "dog", "A cat and a dog sat"]
LABELS = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0]
ASKED = ["the cat", "dog dog dog", "sat"]
WORDS = ["the", "cat", "dog", "sat"]

LOSSES = [0.367359, 0.855576, 1.850202]
EVALUATED = [2.505674, 1.514207]
PREDICTED = [-0.630510, -0.473602, -1.858223]
"""Of tf-keras, with one device."""

strategies = pytest.mark.parametrize("replicas", [0, 1, 2], ids=["no strategy", "one replica", "two replicas"])


def scope_of(replicas: int) -> Any:
    if not replicas:
        return contextlib.nullcontext()
    return tf.distribute.MirroredStrategy([f"cpu:{i}" for i in range(replicas)]).scope()


def numbers(**arguments: Any) -> list[Any]:
    layers = tf.keras.layers
    constant = tf.keras.initializers.Constant(0.1)
    return [
        layers.Embedding(6, 2, embeddings_initializer=constant, **arguments),
        layers.GlobalAveragePooling1D(),
        layers.Dense(1, kernel_initializer="ones"),
    ]


def dataset() -> Any:
    return tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(4)


def compiled(model: Any) -> Any:
    model.compile(loss="mse", optimizer=tf.keras.optimizers.SGD(1.0), metrics=["mae"])
    return model


def sequential() -> Any:
    return tf.keras.Sequential([tf.keras.layers.TextVectorization(vocabulary=WORDS), *numbers()])


def functional() -> Any:
    inputs = tf.keras.Input(shape=(1,), dtype=tf.string)
    x = tf.keras.layers.TextVectorization(vocabulary=WORDS)(inputs)
    for layer in numbers():
        x = layer(x)
    return tf.keras.Model(inputs, x)


def model_behind_a_lookup() -> Any:
    rest = tf.keras.Sequential(numbers())
    return tf.keras.Sequential([tf.keras.layers.TextVectorization(vocabulary=WORDS), rest])


def model_behind_a_model() -> Any:
    begin = tf.keras.Sequential([tf.keras.layers.TextVectorization(vocabulary=WORDS), numbers()[0]])
    return tf.keras.Sequential([tf.keras.Input(shape=(), dtype=tf.string), begin, *numbers()[1:]])


def lookups_as_a_model() -> Any:
    inputs = tf.keras.Input(shape=(1,), dtype=tf.string)
    lookups = tf.keras.Model(inputs, tf.keras.layers.TextVectorization(vocabulary=WORDS)(inputs))
    x = lookups(inputs)
    for layer in numbers():
        x = layer(x)
    return tf.keras.Model(inputs, x)


MODELS = [sequential, functional, model_behind_a_lookup, model_behind_a_model, lookups_as_a_model]


@strategies
@pytest.mark.parametrize("make", MODELS)
def test_text_is_looked_up_before_each_step(make: Any, replicas: int) -> None:
    with scope_of(replicas):
        model = compiled(make())
    history = model.fit(dataset(), epochs=3, verbose=0).history
    np.testing.assert_allclose(history["loss"], LOSSES, atol=2e-6)
    np.testing.assert_allclose(model.evaluate(dataset(), verbose=0), EVALUATED, atol=2e-6)
    asked = tf.constant(ASKED)
    for found in (model.predict(asked, verbose=0), model.predict(ASKED, verbose=0), model(asked).numpy()):
        np.testing.assert_allclose(np.ravel(found), PREDICTED, atol=2e-6)
    np.testing.assert_allclose(np.ravel(model.predict_on_batch(asked)), PREDICTED, atol=2e-6)


def batches() -> Any:
    for begin in (0, 4):
        yield np.array(TEXTS[begin : begin + 4]), np.array(LABELS[begin : begin + 4])


@pytest.mark.parametrize("replicas", [0, 2])
def test_text_of_any_input(replicas: int) -> None:
    arrays = np.array(TEXTS), np.array(LABELS)
    for given in ({"x": arrays[0], "y": arrays[1]}, {"x": arrays[0][:, None], "y": arrays[1]}):
        with scope_of(replicas):
            model = compiled(functional())
        history = model.fit(**given, batch_size=4, shuffle=False, verbose=0).history
        np.testing.assert_allclose(history["loss"], LOSSES[:1], atol=2e-6)
    with scope_of(replicas):
        model = compiled(functional())
    history = model.fit(batches(), steps_per_epoch=2, verbose=0).history
    np.testing.assert_allclose(history["loss"], LOSSES[:1], atol=2e-6)


def test_single_batches_of_text() -> None:
    vectorize = tf.keras.layers.TextVectorization(vocabulary=WORDS)
    model, other = compiled(functional()), compiled(tf.keras.Sequential(numbers()))
    losses = [model.train_on_batch(x, y)[0] for x, y in batches()]
    np.testing.assert_allclose(losses, [other.train_on_batch(vectorize(x), y)[0] for x, y in batches()], atol=2e-6)
    assert losses[1] != losses[0]
    model = compiled(functional())
    model.fit(dataset(), epochs=3, verbose=0)
    expected = model.evaluate(dataset().take(1), verbose=0)
    np.testing.assert_allclose(model.test_on_batch(*next(batches())), expected, atol=2e-6)
    assert expected[0] != pytest.approx(EVALUATED[0])


def test_rows_are_split_off_for_validation() -> None:
    model, other = compiled(functional()), compiled(functional())
    history = model.fit(np.array(TEXTS), np.array(LABELS), validation_split=0.5, shuffle=False, verbose=0).history
    first, last = (np.array(TEXTS[rows]) for rows in (slice(3), slice(3, None)))
    validation = last, np.array(LABELS[3:])
    expected = other.fit(first, np.array(LABELS[:3]), validation_data=validation, shuffle=False, verbose=0).history
    assert history == expected
    assert history["val_loss"][0] != history["loss"][0]


@strategies
def test_structured_data_with_words_and_whole_numbers(replicas: int) -> None:
    layers = tf.keras.layers
    age, kind = tf.keras.Input((1,), name="age"), tf.keras.Input((1,), dtype="string", name="kind")
    zone = tf.keras.Input((1,), dtype="int64", name="zone")
    kinds = layers.StringLookup(vocabulary=["cat", "dog"], output_mode="one_hot")(kind)
    zones = layers.IntegerLookup(vocabulary=[30, 70])(zone)
    x = layers.concatenate([age, kinds, layers.CategoryEncoding(num_tokens=3, output_mode="one_hot")(zones)])
    with scope_of(replicas):
        dense = layers.Dense(1, kernel_initializer=tf.keras.initializers.Constant(0.1))
        model = tf.keras.Model([age, kind, zone], dense(x))
        model.compile("sgd", "mse")
    data = {
        "age": np.array([[1.0], [2.0], [3.0], [4.0]], "float32"),
        "kind": np.array([["cat"], ["dog"], ["?"], ["cat"]]),
        "zone": np.array([[30], [70], [5], [30]]),
    }
    rows = tf.data.Dataset.from_tensor_slices((data, [1.0, 2.0, 3.0, 0.0])).batch(2)
    losses = model.fit(rows, epochs=3, verbose=0).history["loss"]
    np.testing.assert_allclose(losses, [2.312112, 1.928329, 1.726168], atol=2e-6)  # tf-keras
    expected = [0.523060, 0.896329, 1.199083, 1.306289]
    np.testing.assert_allclose(model.predict(data, verbose=0).ravel(), expected, atol=2e-6)


def test_layers_know_whether_they_train() -> None:
    dropping = [numbers()[0], tf.keras.layers.Dropout(0.999), *numbers()[1:]]
    model = compiled(tf.keras.Sequential([tf.keras.layers.TextVectorization(vocabulary=WORDS), *dropping]))
    assert model(tf.constant(["cat"]), training=False).numpy().item() == pytest.approx(0.2)
    assert model(tf.constant(["cat"]), training=True).numpy().item() == 0.0
    model.fit(dataset(), epochs=1, verbose=0)
    embedding = model.layers[1].get_weights()[0]
    np.testing.assert_array_equal(embedding, np.full((6, 2), 0.1, "float32"))  # all of it was dropped


class Own(tf.keras.Sequential):
    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
        )
        return self.compute_metrics(x, y, y_pred)


@strategies
def test_a_step_of_ones_own_gets_what_was_looked_up(replicas: int) -> None:
    with scope_of(replicas):
        model = compiled(Own([tf.keras.layers.TextVectorization(vocabulary=WORDS), *numbers()]))
    model.fit(dataset(), epochs=3, verbose=0)
    np.testing.assert_allclose(model.evaluate(dataset(), verbose=0), EVALUATED, atol=2e-6)


def test_a_second_fit_goes_on_to_new_orders_and_a_model_is_freed() -> None:
    orders: list[list[float]] = []

    class Noting(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            orders[-1].append(round(logs["loss"], 6))

    words = [" ".join(["cat"] * count) for count in range(1, 9)]
    shuffled = tf.data.Dataset.from_tensor_slices((words, np.arange(8.0))).shuffle(8, seed=1).batch(1)
    model = functional()
    model.compile("sgd", "mse")
    model.optimizer.learning_rate = 0.0
    for _ in range(2):
        orders.append([])
        model.fit(shuffled, verbose=0, callbacks=[Noting()])
    assert orders[0] != orders[1]
    freed = weakref.ref(model)
    del model
    gc.collect()
    assert freed() is None


@tf.keras.utils.register_keras_serializable("test")
def shouting(texts: Any) -> Any:
    return tf.strings.regex_replace(tf.strings.lower(texts), "!", "")


@pytest.mark.parametrize("make", MODELS)
def test_models_of_text_are_saved(make: Any, tmp_path: Path) -> None:
    model = compiled(make())
    model.fit(dataset(), epochs=3, verbose=0)
    path = str(tmp_path / "model.keras")
    model.save(path)
    again = tf.keras.models.load_model(path)
    np.testing.assert_allclose(np.ravel(again.predict(tf.constant(ASKED), verbose=0)), PREDICTED, atol=2e-6)
    np.testing.assert_allclose(again.evaluate(dataset(), verbose=0), EVALUATED, atol=2e-6)


def test_functions_of_lookups_are_saved_by_name(tmp_path: Path) -> None:
    vectorize = tf.keras.layers.TextVectorization(standardize=shouting, vocabulary=["cat"])
    model = tf.keras.Sequential([vectorize, *numbers()])
    expected = model(tf.constant(["CAT! dog"])).numpy().tolist()
    path = str(tmp_path / "model.keras")
    model.save(path)
    again = tf.keras.models.load_model(path)
    assert again(tf.constant(["CAT! dog"])).numpy().tolist() == expected
    assert again.layers[0](["CAT! dog"]).tolist() == [[2, 1]]


def test_lookups_are_layers() -> None:
    model = sequential()
    layer = model.layers[0]
    assert isinstance(layer, tf.keras.layers.Layer)
    assert isinstance(layer, tf.keras.layers.TextVectorization)
    assert model.get_layer(layer.name) is layer
    assert layer.get_vocabulary() == ["", "[UNK]", *WORDS]
    model.build((None,))
    assert model.output_shape == (None, 1)
    assert model.count_params() == 15


def test_what_cannot_be_looked_up_before_the_step() -> None:
    inputs = tf.keras.Input((1,))
    numbers_of_words = tf.keras.layers.Dense(1, kernel_initializer="ones")(inputs)
    model = tf.keras.Model(inputs, tf.keras.layers.IntegerLookup(vocabulary=[1, 2])(numbers_of_words))
    assert model(np.array([[2.0], [7.0]])).tolist() == [[2], [0]]
    with pytest.raises(UsageError, match=r"takes the result of 'dense\w*', which has weights"):
        model.predict(np.array([[2.0]]))
    words = tf.keras.Input((1,), dtype="int64")
    named = tf.keras.Model(words, tf.keras.layers.StringLookup(vocabulary=["a"], invert=True)(words))
    assert named(np.array([[1]])).tolist() == [[b"a"]]
    with pytest.raises(UsageError, match="gives text to the rest of the model"):
        named.predict(np.array([[1]]))


def test_wrong_inputs_of_models_of_text() -> None:
    inputs = {name: tf.keras.Input((1,), dtype="string", name=name) for name in ("one", "two")}
    lookup = tf.keras.layers.StringLookup(vocabulary=["a"], output_mode="multi_hot")
    model = tf.keras.Model(inputs, tf.keras.layers.Add()([lookup(each) for each in inputs.values()]))
    with pytest.raises(InputError, match="has an input 'two', but was given"):
        model.predict({"one": np.array([["a"]])})
    with pytest.raises(UsageError, match=r"tf.keras.Input\(shape=\(1,\), dtype=tf.string\)"):
        compiled(sequential()).fit(batches(), verbose=0)


def without_text() -> Any:
    return tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])


@pytest.mark.parametrize("make", [functional, model_behind_a_model, without_text])
def test_models_that_are_dropped_are_freed(make: Any) -> None:
    model = compiled(make())
    model.predict(np.ones((4, 2)) if make is without_text else np.array(TEXTS), verbose=0)
    kept = weakref.ref(model), weakref.ref(model.layers[-1]), weakref.ref(model.trainable_variables[0])
    del model
    gc.collect()
    assert [reference() for reference in kept] == [None, None, None]
