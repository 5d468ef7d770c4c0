"""Ordinary TensorFlow programs, run with one line changed, on two virtual devices."""

from __future__ import annotations

import json
import re
from pathlib import Path

import google_crc32c  # noqa: F401 - sets an environment variable, once; no test should be blamed for it
import keras
import numpy as np
import pytest
import tensorboardX  # noqa: F401 - the same
from tests.programs.conftest import Run

pytestmark = [
    # Keras 3 advises so on what Keras 2 asked for; the programs run all the same.
    pytest.mark.filterwarnings("ignore:Do not pass an `input_shape`:UserWarning"),
    pytest.mark.filterwarnings("ignore:(?s).*does not support masking:UserWarning"),
]

ONE_DEVICE = {'["CPU:0", "CPU:1"]': '["CPU:0"]'}


@pytest.mark.thorough
def test_dcgan(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("dcgan.py")
    history = np.array(found["history"])
    assert history.shape == (4, 2)
    assert np.all((history > 0.2) & (history < 2.0))
    assert history[-1, 1] < history[0, 1] < 1.6  # the discriminator begins at 2 log 2 and learns
    printed = capsys.readouterr().out
    assert "Number of devices: 2" in printed
    shown = [float(gen) for gen in re.findall(r"Epoch \d, gen (\S+),", printed)]
    np.testing.assert_allclose(shown, history[:, 0], atol=1e-4)
    assert "generated (6, 28, 28) float32" in printed
    assert found["difference"] == 0.0  # the checkpoint of the last epoch
    assert float(found["gen_metric"].result()) == pytest.approx(
        np.average(history[:, 0] * 4 * 64 / 250), rel=1e-4
    )  # of examples, where the loss divides the last batch of 58 by 64


@pytest.mark.thorough
def test_text_classification(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("text_classification.py")
    history = found["history"].history
    assert history["loss"][0] > 0.4 > history["loss"][-1]
    assert found["accuracy"] > 0.9
    assert found["loss"] == pytest.approx(history["val_loss"][-1], rel=1e-5)
    printed = capsys.readouterr().out
    assert "Vocabulary size: 22" in printed  # 20 words, padding and unknown
    scores = dict(re.findall(r"(good|bad): (\S+)", printed))
    assert float(scores["good"]) > 0.7 > 0.3 > float(scores["bad"])


@pytest.mark.thorough
def test_autoencoder(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("autoencoder.py")
    losses = found["history"].history["loss"]
    assert losses == sorted(losses, reverse=True)
    assert found["error"] < 0.75 * np.mean(found["x_test"] ** 2)
    assert found["error"] == pytest.approx(found["history"].history["val_loss"][-1], rel=1e-3)
    assert "(None, 7, 7, 4)" in capsys.readouterr().out
    assert found["encoded_imgs"].shape == (100, 7, 7, 4)


@pytest.mark.thorough
def test_segmentation(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("segmentation.py")
    history = found["model_history"].history
    assert history["loss"][0] > 1.0 > 0.5 > history["loss"][-1]
    assert history["dice"][-1] > 0.8
    evaluation = found["evaluation"]
    assert evaluation["iou"] == pytest.approx(found["by_hand"], rel=1e-5)
    assert evaluation["iou"] > 0.8
    assert evaluation["dice"] == pytest.approx(history["val_dice"][-1], rel=1e-5)
    assert len(found["masks_seen"]) == 8
    assert found["masks_seen"][-1] > 0.9
    assert capsys.readouterr().out.count("Sample Prediction after epoch") == 8


@pytest.mark.thorough
def test_transfer_learning(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("transfer_learning.py")
    assert found["moved_while_frozen"] == 0.0  # weights and moving statistics
    assert found["moved"][0] == 0.0  # the first layer stayed frozen
    assert found["moved"][2] > 0.0  # what came after it did not
    assert found["history_fine"].epoch == [3, 4, 5]
    assert found["loss0"] > 1.3
    assert len(found["acc"]) == 6
    assert found["acc"][-1] > 0.75 > 0.6 > found["acc"][0]
    printed = capsys.readouterr().out
    assert re.findall(r"trainable: (\d)", printed) == ["2", "6"]
    assert "2,885" in printed


def test_tfrecords(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("tfrecords.py")
    losses = found["history"].history["loss"]
    assert len(losses) == 4
    assert losses[-1] < 0.7 * losses[0]
    printed = capsys.readouterr().out
    assert "files 3" in printed
    assert f"first label {found['labels'][0]}" in printed
    (shown,) = re.findall(r"rows 630 accuracy (\S+) by hand (\S+)", printed)
    assert shown[0] == shown[1]
    assert found["predictions"].shape == (630, 10)
    assert sorted(found["true"].tolist()) == sorted(found["labels"].tolist())


@pytest.mark.thorough
def test_vae(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("vae.py")
    history = found["history"].history
    assert set(history) == {"loss", "reconstruction_loss", "kl_loss"}
    assert history["loss"] == sorted(history["loss"], reverse=True)
    assert history["loss"][-1] < 0.6 * history["loss"][0]
    total = np.add(history["reconstruction_loss"], history["kl_loss"])
    np.testing.assert_allclose(history["loss"], total, rtol=1e-5)
    assert f"codes (520, 2) digit (28, 28) loss {history['loss'][-1]:.2f}" in capsys.readouterr().out


@pytest.mark.thorough
def test_mixed_precision(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("mixed_precision.py")
    assert found["losses"] == sorted(found["losses"], reverse=True)
    assert 2.0 < found["losses"][0] < 3.0
    assert found["losses"][-1] < 1.3
    printed = capsys.readouterr().out
    assert "Compute dtype: float16\nVariable dtype: float32" in printed
    assert re.search(r"weights .*float32.* computes float16", printed)
    assert "loss scale 32768.0" in printed
    assert float(found["accuracy"].result()) > 0.7
    assert found["history"].history["loss"][-1] < 1.6
    assert found["test_scores"][1] > 0.5


@pytest.mark.thorough
def test_keras_and_callbacks(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("keras_and_callbacks.py")
    history = found["history"].history
    np.testing.assert_allclose(history["learning_rate"], [1e-3, 1e-3, 1e-4, 1e-4, 1e-5], rtol=1e-6)
    assert history["loss"] == sorted(history["loss"], reverse=True)
    printed = capsys.readouterr().out
    rates = [float(rate) for rate in re.findall(r"Learning rate for epoch \d is (\S+)", printed)]
    np.testing.assert_allclose(rates, history["learning_rate"], rtol=1e-6)
    assert "checkpoints ['ckpt_1', 'ckpt_2', 'ckpt_3', 'ckpt_4', 'ckpt_5']" in printed
    evaluations = [found[f"{which}_loss"] for which in ("eval", "unreplicated", "replicated")]
    np.testing.assert_allclose(evaluations, history["val_loss"][-1], rtol=1e-5)
    assert found["eval_acc"] == found["unreplicated_acc"] == found["replicated_acc"]
    assert list(Path("logs").rglob("events*"))
    assert len(Path("training.csv").read_text().splitlines()) == 6


@pytest.mark.thorough
def test_regression(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("regression.py")
    np.testing.assert_allclose(found["normalizer"].mean.numpy().ravel(), found["train_features"].mean(0), rtol=1e-4)
    assert found["untrained"].shape == (10, 1)
    hist = found["hist"]
    assert hist["val_loss"][0] > 10
    assert hist["val_loss"][-1] < 2
    loss, mse, rmse = found["test_results"]
    assert loss == pytest.approx(found["by_hand"], rel=1e-5)
    assert mse == pytest.approx(np.mean(found["error"] ** 2), rel=1e-4)
    assert rmse == pytest.approx(mse**0.5, rel=1e-5)
    assert found["best"][0] < 2
    assert "mean absolute error" in capsys.readouterr().out


@pytest.mark.thorough
def test_prediction(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("prediction.py")
    assert [sum(batch) for batch in found["sizes"]] == [10, 10, 10, 10, 3]
    np.testing.assert_allclose(found["probabilities"], found["alone"], rtol=1e-5)
    np.testing.assert_allclose(found["probabilities"], found["by_keras"], rtol=1e-5)
    np.testing.assert_array_equal(found["labels"], found["y"])
    predicted = found["alone"].argmax(1)
    by_hand = [[int(((found["y"] == t) & (predicted == p)).sum()) for p in (0, 1)] for t in (0, 1)]
    assert found["matrix"].numpy().tolist() == by_hand
    assert "mean [1. 2.]" in capsys.readouterr().out
    assert found["totals"] == [30.0, 31.0, 32.0]


@pytest.mark.thorough
def test_epoch_in_function(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("epoch_in_function.py")
    captured = capsys.readouterr()
    assert "rest 2" in captured.out
    assert "end of the data" in captured.out
    assert "steps 28 rows 400 iterations 28" in captured.out  # 3 epochs of 7 steps, 5 and 2
    shown = [float(loss) for loss in re.findall(r"epoch \d loss (\S+)", captured.err)]  # tf.print writes there
    np.testing.assert_allclose(shown, found["epoch_losses"], rtol=1e-4)
    assert found["epoch_losses"][0] > 1 > 0.1 > found["epoch_losses"][2]
    np.testing.assert_allclose(found["kernel"].ravel(), [1.0, -2.0, 0.5], atol=0.05)
    alone = run("epoch_in_function.py", ONE_DEVICE)
    np.testing.assert_allclose(found["epoch_losses"], alone["epoch_losses"], rtol=1e-4)
    np.testing.assert_allclose(found["kernel"], alone["kernel"], atol=1e-5)


@pytest.mark.thorough
def test_gradient_accumulation(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("gradient_accumulation.py")
    assert "updates 18 left 0.0" in capsys.readouterr().out
    means = np.mean(np.reshape(found["losses"], (6, 12)), axis=1)
    assert means[0] > 0.4
    assert means[-1] < 0.5 * means[0]
    assert len(found["norms"]) == 18
    alone = run("gradient_accumulation.py", ONE_DEVICE)
    np.testing.assert_allclose(found["losses"], alone["losses"], rtol=1e-3)
    np.testing.assert_allclose(found["norms"], alone["norms"], rtol=1e-3)


@pytest.mark.thorough
def test_cyclegan(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("cyclegan.py")
    losses = found["cycle_losses"]
    assert losses[-1] < 0.7 * losses[0]
    assert [int(optimizer.iterations.numpy()) for optimizer in found["optimizers"]] == [40] * 4
    printed = capsys.readouterr().out
    assert "kept 2" in printed
    assert f"Saving checkpoint for epoch 8 at {found['path']}: cycle loss {losses[-1]:.3f}" in printed
    assert Path(found["path"]).name == "ckpt-8"


@pytest.mark.thorough
def test_transformer(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("transformer.py")
    losses, accuracies = zip(*found["results"], strict=True)
    assert losses[0] > 1.5
    assert losses[-1] < 0.2
    assert accuracies[-1] > 0.95
    assert float(found["accuracy"]) > 0.98
    printed = capsys.readouterr().out
    assert "trainable parameters 3660" in printed
    assert len(re.findall(r"Epoch \d Batch \d Loss \d\.\d{4} Accuracy \d\.\d{4}", printed)) == 6


@pytest.mark.thorough
def test_save_and_load(run: Run) -> None:
    found = run("save_and_load.py")
    np.testing.assert_allclose(found["trained"], found["alone"], rtol=1e-5)
    np.testing.assert_allclose(found["trained"], found["under_another"], rtol=1e-5)
    for restored in (keras.models.load_model(found["h5_path"]), found["cold"]):
        for own, other in zip(restored.get_weights(), found["model"].get_weights(), strict=True):
            np.testing.assert_array_equal(own, other)
    # One device against two: relative to the largest number, as rounding of those near zero is as large (JAX 0.12).
    tolerance = 1e-5 * np.abs(found["expected"]).max()
    np.testing.assert_allclose(found["from_h5"], found["expected"], rtol=0, atol=tolerance)
    np.testing.assert_allclose(found["from_weights"], found["expected"], rtol=0, atol=tolerance)
    assert found["expected"].shape == (90, 10)
    np.testing.assert_array_equal(found["before"], found["after"])
    assert Path(found["saved_model_path"]).is_dir()


def test_distributed_input(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = run("distributed_input.py")
    np.testing.assert_allclose(found["sums"], [16 * 0.7] * 6 + [4 * 0.7], rtol=1e-5)
    assert found["per_replica_shapes"] == [[(8, 1), (8, 1)]] * 4
    assert found["parts"] == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3], [4, 5]]  # of 0, 2, 4 and 6 numbers
    printed = capsys.readouterr().out
    assert "last [2, 2]" in printed
    # 3 * sum(range(11)), and the first number of each replica's part of each batch: 0 2, 4 6, 8 10
    assert "total 195.0 ids [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]" in printed
    assert f"with options {json.dumps([[0, 1], [2, 3]])}" in printed
