"""`stratagem.tf.keras` on two workers: a step as in TensorFlow, models in folders, and models of text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess


def trains_and_saves(folder: str, workers: int) -> dict[str, Any]:
    import stratagem.tf as tf

    class Own(tf.keras.Sequential):
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compiled_loss(y, self(x, training=True))
            self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
            return {metric.name: metric.result() for metric in self.metrics}

    strategy = tf.distribute.MultiWorkerMirroredStrategy() if workers > 1 else tf.distribute.get_strategy()
    tf.keras.utils.set_random_seed(1)
    with strategy.scope():
        model = Own([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
        model.compile(tf.keras.optimizers.Adam(lr=0.1), "mse")
    x = np.random.default_rng(0).normal(size=(12, 3)).astype("float32")
    saves = tf.keras.callbacks.ModelCheckpoint(f"{folder}/checkpoints/ckpt_{{epoch}}", save_weights_only=True)
    board = tf.keras.callbacks.TensorBoard(f"{folder}/logs")
    fit: dict[str, Any] = {"batch_size": 5, "shuffle": False, "verbose": 0}
    history = model.fit(x, x[:, :1], epochs=2, callbacks=[saves, board], **fit).history
    chief = workers == 1 or strategy.cluster_resolver.task_id == 0
    model.save_weights(f"{folder}/weights/w")
    plain = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
    plain.load_weights(f"{folder}/weights/w").expect_partial()
    with strategy.scope():
        whole = tf.keras.Sequential(model.layers)
        whole.compile(tf.keras.optimizers.SGD(0.1), "mse")
    whole.save(f"{folder}/model" if chief else f"{folder}/workertemp_1/model")  # as the tutorial does
    whole.save(f"{folder}/together")
    loaded = tf.keras.models.load_model(f"{folder}/together", compile=False)
    weights = [value.tolist() for value in model.get_weights()]
    same = [[value.tolist() for value in other.get_weights()] == weights for other in (plain, loaded)]
    return {"history": history, "weights": weights, "same": same}


def test_two_workers_train_like_one_and_share_their_files(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (expected,) = [r.value for r in run_workers(trains_and_saves, 1, args=(str(tmp_path / "one"), 1))]
    results = run_workers(trains_and_saves, 2, args=(str(tmp_path / "two"), 2))
    for result in [r.value for r in results]:
        assert result["same"] == [True, True]
        for part in ("history", "weights"):
            jax.tree.map(
                lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), result[part], expected[part]
            )
    found = sorted(os.path.relpath(file, tmp_path / "two") for file in (tmp_path / "two").rglob("*") if file.is_file())
    events = [name for name in found if name.startswith("logs")]
    assert len(events) == 1
    assert [name for name in found if name not in events] == [
        "checkpoints/checkpoint",
        "checkpoints/ckpt_1.index",
        "checkpoints/ckpt_1.safetensors",
        "checkpoints/ckpt_2.index",
        "checkpoints/ckpt_2.safetensors",
        "model/model.keras",
        "together/model.keras",
        "weights/checkpoint",
        "weights/w.index",
        "weights/w.safetensors",
        "workertemp_1/model/model.keras",
    ]


def looks_up_text() -> list[list[float]]:
    import stratagem.tf as tf

    texts = ["The cat sat.", "a dog", "cat dog cat dog!", "the the end", "dog", "A cat and a dog sat"]
    layers, constant = tf.keras.layers, tf.keras.initializers.Constant(0.1)
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = tf.keras.Sequential(
            [
                layers.TextVectorization(vocabulary=["the", "cat", "dog", "sat"]),
                layers.Embedding(6, 2, embeddings_initializer=constant),
                layers.GlobalAveragePooling1D(),
                layers.Dense(1, kernel_initializer="ones"),
            ]
        )
        model.compile(loss="mse", optimizer=tf.keras.optimizers.SGD(1.0))
    labels = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    dataset = tf.data.Dataset.from_tensor_slices((texts, labels)).batch(4)
    losses = model.fit(dataset, epochs=3, verbose=0).history["loss"]
    asked = tf.constant(["the cat", "dog dog dog", "sat"])
    return [losses, model.predict(asked, verbose=0).ravel().tolist()]


def test_workers_fill_texts_up_to_the_longest_of_the_global_batch() -> None:
    for result in run_workers(looks_up_text, 2):
        losses, predicted = result.value
        np.testing.assert_allclose(losses, [0.367359, 0.855576, 1.850202], atol=2e-6)  # tf-keras, one device
        np.testing.assert_allclose(predicted, [-0.630510, -0.473602, -1.858223], atol=2e-6)
