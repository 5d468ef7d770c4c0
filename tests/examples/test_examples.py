"""Every example runs and learns, with settings small enough for a test."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import stratagem
from stratagem.core.errors import InputError
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess

EXAMPLES = Path(__file__).parents[2] / "examples"
SEEDED = Path(__file__).parents[1] / "seeded.py"

ON_DIGITS = {"STRATAGEM_DATA": ""}
"""The digits inside Stratagem, whether or not MNIST is at hand."""


class Line(NamedTuple):
    """The last state of one progress bar."""

    accuracy: float
    loss: float


def progress(output: str) -> list[Line]:
    """Return the last state of each bar: one for each epoch, then one for the evaluation."""
    pattern = re.compile(r"(\d+)/(\d+)\b[^\n]*?━[^\n]*?accuracy: (\d\.\d+) - loss: (\d+\.\d+)")
    states = [
        (step == steps, Line(float(accuracy), float(loss))) for step, steps, accuracy, loss in pattern.findall(output)
    ]
    # Keras may write a full bar more than once.
    following = [*(is_full for is_full, _ in states[1:]), False]
    return [
        line for (is_full, line), is_next_full in zip(states, following, strict=False) if is_full and not is_next_full
    ]


def run(example: str, *arguments: str, workers: int = 1) -> list[str]:
    """Return what each worker wrote, from a fixed seed: a test must not hang on how lucky the first weights are."""
    results = run_workers(SEEDED, workers, args=["1", EXAMPLES / example, *arguments], env=ON_DIGITS)
    return [result.output for result in results]


@pytest.mark.usefixtures("as_users_do")
def test_single_device() -> None:
    (output,) = run("single_device.py", "--epochs", "2")

    assert len(progress(output)) == 3, output
    first, second, evaluation = progress(output)
    assert second.loss < first.loss
    assert evaluation.accuracy > 0.8
    assert f"On digits it has not seen: loss {evaluation.loss:.4f}, accuracy {evaluation.accuracy:.1%}." in output


def test_mirrored() -> None:
    (output,) = run("mirrored.py", "--epochs", "1", "--devices", "2")

    epoch, evaluation = progress(output)
    assert "MirroredStrategy: 2 replica(s) on CPU:0, CPU:1" in output
    assert epoch.accuracy > 0.3
    assert evaluation.loss < epoch.loss
    assert evaluation.accuracy > 0.6


@pytest.mark.quick
def test_mirrored_differs_from_single_device_only_where_it_says_so() -> None:
    single, mirrored = ((EXAMPLES / name).read_text().splitlines() for name in ("single_device.py", "mirrored.py"))
    kept = {line.strip() for line in single}
    new = [line for line in mirrored[mirrored.index("import argparse") :] if line.strip() not in kept]

    unmarked = [line.strip() for line in new if "# differs" not in line]
    assert len(new) - len(unmarked) == 5
    assert unmarked == [
        'parser.add_argument("--devices", type=int, help="virtual CPU devices, to try it without GPUs")',
        "if options.devices:",
        "stratagem.testing.virtual_devices(options.devices)",
    ]


def test_central_storage() -> None:
    (output,) = run("central_storage.py", "--epochs", "1", "--devices", "2")

    epoch, evaluation = progress(output)
    assert "CentralStorageStrategy: 2 replica(s) on CPU:0, CPU:1, variables on CPU:2" in output
    assert evaluation.loss < epoch.loss
    assert evaluation.accuracy > 0.6
    ((megabytes, place),) = re.findall(r"(\d+\.\d) MB of variables and optimizer state, all on (\S+)\.", output)
    assert (float(megabytes) > 30, place) == (True, "cpu:2")


@pytest.mark.usefixtures("as_users_do")
def test_multi_worker_shows_one_bar_and_one_result() -> None:
    chief, other = run("multi_worker.py", "--epochs", "2", "--steps", "35", workers=2)

    assert "2 replicas on 2 workers" in chief
    first, second, evaluation = progress(chief)
    assert second.loss < first.loss < 2.4
    assert f"On digits it has not seen: loss {evaluation.loss:.4f}, accuracy {evaluation.accuracy:.1%}." in chief
    assert "--epochs 12 reaches about 90%" in chief
    assert progress(other) == []
    assert "On digits" not in other


@pytest.mark.usefixtures("as_users_do")
def test_parameter_servers() -> None:
    program = EXAMPLES / "parameter_server.py"
    results = run_workers(SEEDED, 2, servers=1, args=["1", program, "--epochs", "1", "--steps", "60"], env=ON_DIGITS)

    assert [result.returncode for result in results] == [0] * 4
    chief = results[0].output
    epoch, evaluation = progress(chief)
    assert re.search(r"Scheduled 60 steps: mean loss (\d+\.\d+)", chief) is not None, chief
    assert evaluation.loss < epoch.loss
    assert evaluation.accuracy > 0.8
    assert all("On digits" not in result.output for result in results[1:])


def test_inspect_fit(tmp_path: Path) -> None:
    for output in run("inspect_fit.py", "--folder", str(tmp_path), workers=2)[:1]:
        assert "Step 32 computed NaN or infinity: `log` was the first operation, in float32[32, 8]." in output
        assert "in layer 'logarithm' on replica 0 of 2 (worker 0). Row 16 of the 64" in output
        assert "The weights are finite." in output
    assert {file.name for file in tmp_path.glob("step-32.*")} >= {"step-32.json", "step-32.safetensors"}


def test_estimator(tmp_path: Path) -> None:
    """1,437 digits are 23 batches of 64: on two replicas eleven steps, and the batch that is left is left out."""
    (output,) = run("estimator.py", "--devices", "2", "--learning-rate", "0.05", "--model-dir", str(tmp_path))

    (first,) = re.findall(r"loss = (\d\.\d+), step = 0$", output, re.MULTILINE)
    (step, loss) = re.findall(r"Saving dict for global step (\d+): global_step = 11, loss = (\d\.\d+)", output)[-1]
    assert step == "11"
    assert 2.1 < float(first) < 2.6
    assert float(loss) < float(first)
    assert {file.name for file in tmp_path.glob("model*")} == {
        f"model.ckpt-{n}.{kind}" for n in (0, 11) for kind in ("index", "safetensors")
    }
    assert re.search(rf"^\(\{{'loss': np.float32\({loss}\), 'global_step': np.int64\(11\)\}}, \[\]\)$", output, re.M)


def test_recommender() -> None:
    arguments = ["1", EXAMPLES / "recommender.py", "--rows", "20000", "--epochs", "1"]
    results = run_workers(SEEDED, 1, servers=1, args=arguments)

    pattern = r"among 20 of 500 articles: (\S+)% of the time; before training (\S+)%"
    ((trained, untrained),) = re.findall(pattern, results[0].output)
    assert float(untrained) < 10
    assert float(trained) > 60  # about 90 are to be had: one purchase of ten is of any taste
    assert not any("rows travel" in result.output for result in results)


SMALL = ["--epochs", "2", "--filters", "4", "--blocks", "1"]


def test_resnet_on_two_devices() -> None:  # the other strategies: tests/tutorials/test_strategies.py
    (output,) = run("resnet.py", "--strategy", "mirrored", "--devices", "2", *SMALL)

    epochs = progress(output)
    assert len(epochs) == 2
    assert epochs[1].loss < epochs[0].loss
    assert epochs[1].accuracy > 0.3
    assert len(re.findall(r"val_accuracy: \d\.\d+ - val_loss: \d+\.\d+\n", output)) == 2


def test_a_gpt_has_the_same_loss_at_every_stage() -> None:
    small = ("--steps", "8", "--width", "64", "--blocks", "1")
    runs = {
        "none": run("gpt.py", "--devices", "2", "--shard", "none", *small),
        "optimizer": run("gpt.py", "--devices", "2", "--shard", "optimizer", *small),
        "workers": run("gpt.py", "--strategy", "multi_worker", "--shard", "none", *small, workers=2),
        "parameters": run("gpt.py", "--strategy", "multi_worker", "--shard", "parameters", *small, workers=2),
        "groups": run("gpt.py", "--devices", "4", "--model-parallel", "2", "--shard", "none", *small),
    }
    losses, weights, slots = {}, {}, {}
    for stage, outputs in runs.items():
        [losses[stage]] = re.findall(r"loss after 1 epoch\(s\): (\d\.\d{6})", outputs[0])
        [(held, in_slots)] = re.findall(r"holds (\d+\.\d+) MB of weights and (\d+\.\d+) MB of", outputs[0])
        weights[stage], slots[stage] = float(held), float(in_slots)
    assert 2.5 < float(losses["none"]) < 4.5  # of 128 letters, log(128) is 4.85
    assert losses["none"] == losses["optimizer"]
    assert losses["workers"] == losses["parameters"]
    # XLA rounds otherwise where a program of two devices becomes one of each process: the last bit of a float32.
    assert float(losses["workers"]) == pytest.approx(float(losses["none"]), rel=3e-7)
    assert float(losses["groups"]) == pytest.approx(float(losses["none"]), rel=1e-5)
    assert slots["optimizer"] < 0.8 * slots["none"]
    assert weights["optimizer"] == weights["none"]
    assert weights["parameters"] < 0.8 * weights["none"]
    assert weights["groups"] < 0.8 * weights["none"]


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ("images.py", ["found 1437 files belonging to 10", "using 1150 files for training and 287 for validation"]),
        ("records.py", ["1437 records in 4 files, 287 of them for validation"]),
    ],
)
def test_files_on_two_workers(example: str, said: list[str]) -> None:
    chief, other = run(example, "--epochs", "2", workers=2)

    assert [line in chief for line in said] == [True] * len(said), chief
    first, second = progress(chief)
    assert second.loss < first.loss
    accuracies = [float(accuracy) for accuracy in re.findall(r"val_accuracy: (\d\.\d+)", chief)]
    assert len(accuracies) == 2
    assert accuracies[1] > 0.75
    assert progress(other) == []
    assert "1437" not in other


def epochs_of(output: str) -> list[tuple[float, float, float, float]]:
    """Return (loss, accuracy, test loss, test accuracy) of each epoch of the custom loop."""
    number = r"(\d+\.\d+)"
    pattern = rf"Epoch \d+, Loss: {number}, Accuracy: {number}, Test Loss: {number}, Test Accuracy: {number}"
    return [(float(a), float(b), float(c), float(d)) for a, b, c, d in re.findall(pattern, output)]


def check_custom_loop(output: str, folder: Path) -> None:
    epochs = epochs_of(output)
    assert [len(epochs), epochs[2][3] > 75, epochs[2][0] < epochs[0][0]] == [3, True, True], output
    (restored,) = re.findall(r"Accuracy after restoring the saved model without strategy: (\S+)", output)
    (saved,) = re.findall(r"Accuracy when it was saved: (\S+)", output)
    assert restored == saved
    assert f"{float(restored):.3f}" == f"{epochs[2][3]:.3f}"
    assert "no object of the program took" not in output
    (ten_steps,) = re.findall(r"Ten steps of an iterator, Loss: (\S+),", output)
    (in_function,) = re.findall(r"An epoch inside a function, Loss: (\S+),", output)
    assert float(in_function) < float(ten_steps) < epochs[1][0]
    assert stratagem.train.latest_checkpoint(folder) == str(folder / "ckpt-2")  # epochs 1 and 3


@pytest.mark.parametrize("devices", [1, 2])
def test_custom_loop(devices: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if devices == 2:
        request.getfixturevalue("as_users_do")
    arguments = ["--epochs", "3", "--devices", str(devices), "--checkpoints", str(tmp_path)]
    (output,) = run("custom_loop.py", *arguments, "--batch-size-per-replica", str(64 // devices))

    assert f"Number of devices: {devices}" in output
    check_custom_loop(output, tmp_path)


def test_custom_loop_on_two_workers(tmp_path: Path) -> None:
    arguments = ["--strategy", "multi_worker", "--epochs", "3", "--batch-size-per-replica", "32"]
    chief, other = run("custom_loop.py", *arguments, "--checkpoints", str(tmp_path), workers=2)

    assert "Number of devices: 2" in chief
    check_custom_loop(chief, tmp_path)
    assert "Epoch" not in other
    assert "Accuracy" not in other


def test_a_loop_continues_when_a_worker_is_killed(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "stratagem", "run", "--elastic", "1:2", str(EXAMPLES / "elastic_loop.py")),
            *("--epochs", "2", "--kill-at", "30", "--killed", str(killed), "--checkpoints", str(tmp_path / "none")),
        ],
        env={**os.environ, **ON_DIGITS, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert killed.exists()
    lines = re.findall(
        r"Epoch (\d) with (\d) workers: loss (\S+), test accuracy (\S+), (\d+) steps", done.stdout + done.stderr
    )
    (_, workers, first, _, steps), (_, _, second, accuracy, all_steps) = lines
    assert workers == "2"
    assert int(all_steps) == 2 * int(steps)
    assert float(second) < float(first) / 2
    assert float(accuracy) > 0.8


def test_a_loop_whose_launcher_is_told_to_end_resumes_where_it_was(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stratagem", "run", "--elastic", "2:2", str(EXAMPLES / "elastic_loop.py")]
    command += ["--epochs", "2", "--checkpoints", str(tmp_path)]
    variables = {**os.environ, **ON_DIGITS, "JAX_PLATFORMS": "cpu"}
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as told:
        lines = []
        for line in told.stdout or ():
            lines.append(line)
            if "Epoch 1" in line:
                told.terminate()
    assert told.returncode == 42, lines
    steps = int(re.findall(r"Epoch 1 .* (\d+) steps", "".join(lines))[0])
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert steps < int(re.findall(r"Resumed behind step (\d+)", done.stdout)[0]) < 2 * steps
    assert re.findall(r"Epoch (\d) .* (\d+) steps", done.stdout) == [("2", str(2 * steps))]


def test_gan_on_two_devices() -> None:
    (output,) = run("gan.py", "--devices", "2", "--epochs", "8")

    losses = re.findall(r"Epoch \d+, generator (\d+\.\d+), discriminator (\d+\.\d+)", output)
    assert len(losses) == 8
    assert all(0.0 < float(discriminator) < 1.6 for _, discriminator in losses)
    ((real, fake),) = re.findall(r"Mean brightness: (\S+) of the digits, (\S+) of the generator's", output)
    assert abs(float(fake) - float(real)) < 0.1  # an untrained generator makes 0.5


def test_folder_without_mnist(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "single_device.py"), "--data", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert f"InputError: There is no {tmp_path / 'mnist.npz'}." in done.stderr
    assert "Why it matters:" in done.stderr
    assert "What to do: Name the folder that holds mnist.npz" in done.stderr


@pytest.mark.quick
def test_digits_are_like_mnist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    digits = importlib.import_module("digits")

    (x_train, y_train), (x_test, y_test) = digits.load()
    assert (x_train.shape, x_test.shape) == ((1437, 28, 28), (360, 28, 28))
    assert (x_train.dtype, y_train.dtype) == (np.float32, np.int64)
    assert (x_train.min(), x_train.max()) == (0.0, 1.0)
    assert x_train[:, :4].max() == 0.0
    assert sorted(set(y_test.tolist())) == list(range(10))
    (again, _), _ = digits.load()
    assert np.array_equal(x_train, again)

    images, labels = np.full((2, 28, 28), 255, np.uint8), np.array([3, 4], np.uint8)
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels, x_test=images[:1], y_test=labels[:1])
    (x_train, y_train), (x_test, _) = digits.load(str(tmp_path))
    assert (x_train.max(), x_train.dtype, y_train.tolist(), len(x_test)) == (1.0, np.float32, [3, 4], 1)
    with pytest.raises(InputError, match=r"There is no .*mnist\.npz"):
        digits.load(str(tmp_path / "nowhere"))
