"""A notebook in a real kernel: a cell that is run again trains the model that it makes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

MAKE = """
import json
import numpy as np
import stratagem
import keras

strategy = stratagem.OneDeviceStrategy("cpu:0")
x = np.linspace(-1, 1, 8, dtype="float32").reshape(4, 2)
"""

MODEL = """
keras.utils.set_random_seed(seed)
with strategy.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(rate)
first = model.get_weights()
"""

STEP = """
def step(x):
    with stratagem.GradientTape() as tape:
        loss = keras.ops.mean(keras.ops.square(model(x) - 1.0))
    optimizer.apply({gradients})
    return loss
""".format(gradients="tape.gradient(loss, model.trainable_variables), model.trainable_variables")

TRAIN = """
losses = [float({call}) for _ in range(3)]
moved = [float(abs(old - new).max()) for old, new in zip(first, model.get_weights())]
print(json.dumps([losses, moved]))
"""

CALLS = {
    "run": "strategy.run(step, args=(x,))",
    "function": "compiled(x)",
}


def outputs(client: NotebookClient, notebook: nbformat.NotebookNode, sources: list[str]) -> list[str]:
    """Run cells one after another, and return what each printed."""
    printed = []
    for source in sources:
        cell = nbformat.v4.new_code_cell(source)
        notebook.cells.append(cell)
        done = client.execute_cell(cell, len(notebook.cells) - 1)
        printed.append("".join(output.get("text", "") for output in done.outputs if output.get("name") == "stdout"))
    return printed


@pytest.mark.multiprocess
@pytest.mark.parametrize("how", list(CALLS))
def test_a_cell_that_is_run_again(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's cell is run again with another seed and rate, the step's cell is not, then it is as well."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    train = TRAIN.format(call=CALLS[how])
    make_function = "compiled = stratagem.function(step)"
    notebook = nbformat.v4.new_notebook()
    client = NotebookClient(notebook, timeout=100, kernel_name="python3")
    client.create_kernel_manager().kernel_cmd = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    with client.setup_kernel():
        once = [MODEL, train]
        found = outputs(client, notebook, [MAKE, STEP, make_function, "seed, rate = 1, 0.1", *once])
        found += outputs(client, notebook, ["seed, rate = 2, 0.2", *once, STEP, "seed, rate = 1, 0.1", *once])
    lines = [text for text in found if text]
    first, second, third = map(json.loads, lines)
    assert min(second[1]) > 0.01  # the new weights were trained
    assert second[0] != first[0]
    assert third == first  # the first seed and rate again: the same numbers
