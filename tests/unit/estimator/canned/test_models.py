"""The Estimators that come with a model: their numbers, keys and names, with words among the features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it

import stratagem
from stratagem.core.errors import InputError
from stratagem.estimator import (
    BaselineRegressor,
    BinaryClassHead,
    DNNClassifier,
    DNNLinearCombinedClassifier,
    DNNRegressor,
    Estimator,
    EstimatorSpec,
    LinearClassifier,
    LinearRegressor,
    MultiClassHead,
    MultiLabelHead,
    NanLossDuringTrainingError,
    RegressionHead,
    RunConfig,
    ServingInputReceiver,
    decays,
    get_global_step,
    optimizers,
)
from stratagem.estimator import feature_column as fc

RNG = np.random.default_rng(0)
ROWS = 48
AGE = RNG.uniform(1, 80, ROWS).astype("float32")
SEX = RNG.choice(["male", "female"], ROWS)
TOWN = RNG.choice(["A", "B", "C", ""], ROWS)
SURVIVED = ((SEX == "female") | (AGE < 12)).astype("int64")
FEATURES = {"age": AGE, "sex": SEX, "town": TOWN, "weight": np.where(AGE > 40, 2.0, 1.0).astype("float32")}
SEX_COLUMN = fc.categorical_column_with_vocabulary_list("sex", ["male", "female"])
TOWN_COLUMN = fc.categorical_column_with_hash_bucket("town", 7)
AGE_COLUMN = fc.numeric_column("age", normalizer_fn=lambda age: age / 80)


def config(replicas: int = 1, **options: Any) -> RunConfig:
    strategy = stratagem.MirroredStrategy([f"cpu:{i}" for i in range(replicas)])
    return RunConfig(train_distribute=strategy, save_summary_steps=None, tf_random_seed=3, **options)


def input_fn(labels: Any = SURVIVED, epochs: int | None = 1, batch: int = 12) -> Any:
    return lambda: stratagem.data.Dataset.from_tensor_slices((FEATURES, labels)).repeat(epochs).batch(batch)


def test_a_wide_and_deep_model_of_words(tmp_path: Path) -> None:
    """On two replicas; two optimizers, one with a rate of the step; labels by name; weights of examples."""
    names = np.where(SURVIVED == 1, "yes", "no")
    classifier = DNNLinearCombinedClassifier(
        tmp_path,
        linear_feature_columns=[SEX_COLUMN, fc.crossed_column(["sex", "town"], 20)],
        linear_optimizer=lambda: keras.optimizers.Ftrl(decays.exponential_decay(0.5, get_global_step(), 10, 0.9)),
        dnn_feature_columns=[AGE_COLUMN, fc.embedding_column(TOWN_COLUMN, 3), fc.indicator_column(SEX_COLUMN)],
        dnn_optimizer=optimizers.AdamOptimizer(0.02),
        dnn_hidden_units=[8],
        weight_column="weight",
        label_vocabulary=["no", "yes"],
        config=config(replicas=2),
    )
    classifier.train(input_fn(names, None), steps=60)
    found = classifier.evaluate(input_fn(names))
    rows = list(classifier.predict(input_fn(names)))
    chances = np.array([row["logistic"][0] for row in rows], "float64")
    weights = FEATURES["weight"].astype("float64")
    cross = -np.where(SURVIVED == 1, np.log(chances), np.log(1 - chances))
    expected = {
        "accuracy": np.average((chances > 0.5) == SURVIVED, weights=weights),
        "accuracy_baseline": max(np.average(SURVIVED, weights=weights), 1 - np.average(SURVIVED, weights=weights)),
        "average_loss": np.average(cross, weights=weights),
        "label/mean": np.average(SURVIVED, weights=weights),
        "loss": np.mean([np.mean((cross * weights)[i : i + 12]) for i in range(0, ROWS, 12)]),
        "prediction/mean": np.average(chances, weights=weights),
    }
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-4, err_msg=key)
    assert found.keys() - expected.keys() == {"auc", "auc_precision_recall", "global_step", "precision", "recall"}
    assert found["accuracy"] > 0.9
    assert found["auc"] > 0.95
    for row, chance in zip(rows, chances, strict=True):
        assert row["classes"].tolist() == [b"yes" if chance > 0.5 else b"no"]
        assert row["all_classes"].tolist() == [b"no", b"yes"]
        np.testing.assert_allclose(row["probabilities"], [1 - chance, chance], atol=1e-6)
    trained = [n for n in classifier.get_variable_names() if n.startswith(("dnn", "linear"))]
    assert trained == [
        "dnn/hiddenlayer_0/bias",
        "dnn/hiddenlayer_0/kernel",
        "dnn/input_from_feature_columns/input_layer/town_embedding/embedding_weights",
        "dnn/logits/bias",
        "dnn/logits/kernel",
        "linear/linear_model/bias_weights",
        "linear/linear_model/sex/weights",
        "linear/linear_model/sex_X_town/weights",
    ]
    assert classifier.get_variable_value("linear/linear_model/sex/weights").shape == (2, 1)


def test_a_network_is_the_one_of_its_weights_and_is_exported(tmp_path: Path) -> None:
    labels = (AGE // 30).astype("int32")
    columns = [AGE_COLUMN, fc.bucketized_column(fc.numeric_column("age"), [20, 50])]
    classifier = DNNClassifier([6, 5], columns, tmp_path, n_classes=3, config=config(), activation_fn="tanh")
    classifier.train(input_fn(labels, None), steps=5)
    value = classifier.get_variable_value
    hidden = np.concatenate([AGE[:, None] / 80, np.eye(3)[np.digitize(AGE, [20, 50])]], axis=1)
    for layer in ("hiddenlayer_0", "hiddenlayer_1"):
        hidden = np.tanh(hidden @ value(f"dnn/{layer}/kernel") + value(f"dnn/{layer}/bias"))
    logits = hidden @ value("dnn/logits/kernel") + value("dnn/logits/bias")
    rows = list(classifier.predict(input_fn(labels)))
    np.testing.assert_allclose([row["logits"] for row in rows], logits, rtol=2e-4, atol=2e-5)
    assert [int(row["class_ids"][0]) for row in rows] == logits.argmax(axis=1).tolist()
    assert set(rows[0]) == {"logits", "probabilities", "class_ids", "classes", "all_class_ids", "all_classes"}
    found = classifier.evaluate(input_fn(labels))
    assert set(found) == {"accuracy", "average_loss", "loss", "global_step"}
    folder = classifier.export_saved_model(tmp_path / "export", lambda: ServingInputReceiver({"age": AGE}))
    assert (Path(folder) / "predict.jax_export").exists()
    words = LinearClassifier([SEX_COLUMN], tmp_path / "words", config=config())
    words.train(input_fn(), steps=1)
    with pytest.raises(InputError, match="features with text among them"):
        words.export_saved_model(tmp_path / "export", lambda: ServingInputReceiver({"sex": SEX}))


def test_regressors_find_the_line(tmp_path: Path) -> None:
    labels = np.stack([AGE / 40, 1 - AGE / 80], axis=1).astype("float32")
    linear = LinearRegressor([AGE_COLUMN], tmp_path, 2, optimizer=keras.optimizers.SGD(0.7), config=config())
    linear.train(input_fn(labels, None, batch=48), steps=300)
    np.testing.assert_allclose(linear.get_variable_value("linear/linear_model/age/weights"), [[2.0, -1.0]], atol=0.02)
    np.testing.assert_allclose(linear.get_variable_value("linear/linear_model/bias_weights"), [0.0, 1.0], atol=0.02)
    found = linear.evaluate(input_fn(labels))
    assert set(found) == {"average_loss", "label/mean", "loss", "prediction/mean", "global_step"}
    np.testing.assert_allclose(found["label/mean"], labels.mean(), rtol=1e-5)
    first = AGE / 40
    deep = DNNRegressor([4], [AGE_COLUMN], tmp_path / "deep", config=config(), dropout=0.1, batch_norm=True)
    deep.train(input_fn(first, None), steps=2)
    assert next(deep.predict(input_fn(first)))["predictions"].shape == (1,)
    base = BaselineRegressor(tmp_path / "base", config=config(), optimizer="SGD", loss_reduction="sum")
    base.train(input_fn(first, None, 48), steps=1)
    np.testing.assert_allclose(base.get_variable_value("baseline/bias"), [0.3 * 2 * first.sum()], rtol=1e-4)


def test_a_head_in_a_model_fn_of_ones_own(tmp_path: Path) -> None:
    head = MultiLabelHead(2)

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        male: Any = keras.ops.cast(features["sex"] == "male", "float32")
        logits = keras.layers.Dense(2)(male[:, None])
        return head.create_estimator_spec(
            features, mode, logits, labels, optimizer=keras.optimizers.Adam(0.3), regularization_losses=[male[0] * 0.5]
        )

    labels = np.stack([SEX == "male", SEX != "male"], axis=1).astype("int32")
    estimator = Estimator(model_fn, tmp_path, config()).train(input_fn(labels, None), steps=40)
    found = estimator.evaluate(input_fn(labels))
    assert found["auc"] > 0.99
    assert found["average_loss"] < 0.1
    assert set(found) == {
        "auc",
        "auc_precision_recall",
        "average_loss",
        "loss",
        "regularization_loss",
        "global_step",
    }


COLUMNS = [AGE_COLUMN]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DNNClassifier([4], COLUMNS, optimizer="adam"), "optimizer is 'adam'"),
        (lambda: DNNClassifier([4], COLUMNS, n_classes=1), "n_classes=1"),
        (lambda: DNNClassifier(10, COLUMNS), "hidden_units is 10"),
        (lambda: LinearClassifier([]), "the names none"),
        (lambda: LinearClassifier(COLUMNS, label_vocabulary=["a", "b", "c"]), "3 names, for 2 classes"),
        (lambda: LinearRegressor(COLUMNS, loss_reduction="most"), "loss_reduction is 'most'"),
        (lambda: DNNLinearCombinedClassifier(dnn_feature_columns=COLUMNS), "1 dnn_feature_columns and"),
    ],
)
def test_arguments_that_cannot_be_used(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_data_that_cannot_be_used() -> None:
    class_ids = np.zeros((2, 1), "float32")
    with pytest.raises(InputError, match=r"Labels have shape \(2, 3\)"):
        RegressionHead().create_estimator_spec({}, "train", class_ids, np.zeros((2, 3)))
    with pytest.raises(InputError, match=r"logits of shape \(2, 1\)"):
        MultiClassHead(3).create_estimator_spec({}, "train", class_ids, np.zeros(2))
    with pytest.raises(InputError, match="gives no labels"):
        BinaryClassHead().create_estimator_spec({}, "train", class_ids)
    with pytest.raises(InputError, match="weight_column is 'w'"):
        BinaryClassHead("w").create_estimator_spec({}, "eval", class_ids, np.zeros(2))
    with pytest.raises(InputError, match="does not know how to train"):
        BinaryClassHead().create_estimator_spec({}, "train", class_ids, np.zeros(2))
    with pytest.raises(InputError, match="Labels are text, and the classifier has no label_vocabulary"):
        LinearClassifier(COLUMNS, config=config()).train(input_fn(SEX), steps=1)
    with pytest.raises(NanLossDuringTrainingError, match="labels that are not from 0 to n_classes - 1"):
        LinearClassifier(COLUMNS, config=config()).train(input_fn(SURVIVED + 1), steps=2)
    with pytest.raises(InputError, match="Feature columns find features by name"):
        LinearClassifier(COLUMNS, config=config()).train(lambda: (AGE, SURVIVED), steps=1)
