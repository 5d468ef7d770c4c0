"""`stratagem replay`: the step that is run, from which backup, what is compared, and what is left alone."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from stratagem.core.errors import CheckpointError, InputError
from stratagem.fit.steps import Step
from stratagem.replay.__main__ import replayed
from stratagem.replay.again import Result, Wanted

SCRIPT = """
import sys

import numpy as np
import stratagem
from stratagem import keras

folder, ends_at = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(0)
x = rng.uniform(0.5, 1.5, (40, 3)).astype("float32")
x[39] = -1.0
keras.utils.set_random_seed(1)
with stratagem.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
    layers = [keras.Input((3,)), keras.layers.Lambda(keras.ops.log, name="logarithm"), keras.layers.Dropout(0.2)]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")


class Ends(keras.callbacks.Callback):
    steps = 0

    def on_train_batch_begin(self, batch, logs=None):
        if self.steps == ends_at:
            raise InterruptedError
        self.steps += 1
        with open(f"{folder}/written", "a") as file:
            file.write(f"{self.steps}\\n")


schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.9 * rate)
inspect = stratagem.callbacks.Inspect(every=5, folder=f"{folder}/inspect", nonfinite=None)
backup = stratagem.callbacks.BackupAndRestore(f"{folder}/backup", save_freq=4)
print("trains")
callbacks = [Ends(), schedule, inspect, backup]
model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0, shuffle=False, callbacks=callbacks)
"""


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    """Return a program that was interrupted behind step 8, in the folder of its backups."""
    path, argv, search = tmp_path / "train.py", sys.argv, list(sys.path)
    path.write_text(SCRIPT)
    with contextlib.suppress(InterruptedError):
        run(path, 9)
    yield path
    sys.argv, sys.path[:] = argv, search


def run(path: Path, ends_at: int) -> None:
    sys.argv = [str(path), str(path.parent), str(ends_at)]
    exec(compile(path.read_text(), str(path), "exec"), {"__name__": "__main__"})


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def replay(script: Path, step: int, **asked: Any) -> Result:
    return replayed(Wanted(str(script.parent / "backup"), step, **asked), str(script), (str(script.parent), "99"))


def test_a_step_has_the_same_bits_as_the_run_before_and_nothing_is_written(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(script.parent)
    result = replay(script, 5)
    assert result.is_same
    first, second = result.text.splitlines()
    assert first.startswith("2 runs of step 5 computed the same bits: ")
    assert second == "The run that Inspect checked had the same bits after it."
    assert files(script.parent) == before
    said = capsys.readouterr()
    assert said.out == ""
    assert "Step 5 is run from the backup after step 4" in said.err
    assert "These callbacks are left out, because they may write files: Ends" in said.err


def test_what_the_run_before_computed_otherwise_is_told(script: Path) -> None:
    file = script.parent / "inspect" / "digests.jsonl"
    file.write_text(file.read_text().replace('"digest": "', '"digest": "0'))
    result = replay(script, 5)
    assert not result.is_same
    assert result.text.splitlines()[1] == "The run that Inspect checked had DIFFERENT bits after it."


def test_a_run_that_differs_is_named_with_its_variables(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count, call = [0], Step.__call__

    def disturbed(step: Step, values: Any, batch: Any) -> Any:
        logs = call(step, values, batch)
        count[0] += 1
        if count[0] == 4:
            values[0] = jnp.copy(values[0]).at[0, 0].add(1e-3)
        return logs

    monkeypatch.setattr(Step, "__call__", disturbed)
    result = replay(script, 9, times=None)
    assert not result.is_same
    first, second = result.text.splitlines()
    assert first == "Run 4 of step 9 computed different bits than run 1:"
    assert re.match(r" *trainable_variables/0/sequential\w*/dense\w*/kernel: checksums ", second)


@pytest.mark.thorough
def test_locate_names_the_layer_and_the_rows(script: Path) -> None:
    result = replay(script, 10, locates=True)
    assert result.is_same
    assert "Step 10 computed NaN or infinity: `log` was the first operation" in result.text
    assert "Row 3 of the 4 of its global batch led to it." in result.text
    assert replay(script, 9, locates=True).text.endswith("All numbers that it computes are finite.")


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (3, r"from before step 3: its backups were made after step 4 and 8"),
        (21, "`fit` has ended after step 20, and --step is 21"),
    ],
)
def test_steps_that_cannot_be_run(script: Path, step: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        replay(script, step)


def test_a_folder_without_backups_and_one_with_damaged_ones(script: Path, tmp_path: Path) -> None:
    for file in (script.parent / "backup").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-9])
    with (
        pytest.warns(UserWarning, match="The checkpoint"),
        pytest.raises(CheckpointError, match="are damaged or missing"),
    ):
        replay(script, 5)
    shutil.rmtree(script.parent / "backup")
    with pytest.raises(InputError, match="has no backups"):
        replay(script, 5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import sys\nsys.exit('no data')\n",
            "ended with 'no data'; it has no call of `fit` with a BackupAndRestore",
        ),
        (
            "import numpy as np\nfrom stratagem import keras\n"
            "model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])\nmodel.compile('sgd', 'mse')\n"
            "model.fit(np.ones((2, 1)), np.ones((2, 1)), verbose=0)\n",
            "it has 1 call of `fit`, but none with a BackupAndRestore",
        ),
    ],
)
def test_programs_without_a_backup(script: Path, text: str, said: str) -> None:
    script.write_text(text)
    with pytest.raises(InputError, match=said):
        replay(script, 5)


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no file"):
        replayed(Wanted(str(tmp_path), 5), str(tmp_path / "missing.py"))
