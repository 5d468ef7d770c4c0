"""Each notebook is its source, converted, and does what it says when it runs from the first cell to the last."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tools import notebooks

SOURCES = notebooks.sources()


def test_there_are_four() -> None:
    names = ["custom_loop", "kill_a_worker", "larger_than_a_device", "one_line_changed"]
    assert [source.stem for source in SOURCES] == names
    assert sorted(file.stem for file in notebooks.FOLDER.glob("*.ipynb")) == names


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_notebook_is_its_source_converted(source: Path) -> None:
    written = source.with_suffix(".ipynb").read_text("utf-8")
    assert written == notebooks.text(source.read_text("utf-8")), "python -m tools.notebooks writes it anew"
    notebook = nbformat.reads(written, as_version=4)
    nbformat.validate(notebook)
    assert [cell.outputs for cell in notebook.cells if cell.cell_type == "code" and cell.outputs] == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_notebook_begins_with_what_a_hosted_one_needs(source: Path) -> None:
    first, second, *_ = (cell.source for cell in notebooks.converted(source.read_text("utf-8")).cells if is_code(cell))
    assert first.splitlines() == [
        "import importlib.util",
        "",
        'if importlib.util.find_spec("stratagem") is None:',
        "    %pip install --quiet stratagem",
    ]
    assert re.search("devices", second) is not None


def is_code(cell: Any) -> bool:
    return cell.cell_type == "code"


def output(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a notebook in an empty folder; return all that its cells printed and returned."""
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    roots = [str(Path(path).absolute()) for path in os.environ["PYTHONPATH"].split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(roots))  # the kernel works in another folder
    notebook = nbformat.read(notebooks.FOLDER / f"{name}.ipynb", as_version=4)
    client = NotebookClient(notebook, timeout=150, resources={"metadata": {"path": str(folder)}})
    client.create_kernel_manager().kernel_cmd = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    client.execute()
    outputs = [each for cell in notebook.cells if is_code(cell) for each in cell.outputs]
    assert [text for each in outputs if "os.fork" in (text := each.get("text", ""))] == []  # JAX would warn of `!`
    return "\n".join(each.get("text", "") or str(each.get("data", {}).get("text/plain", "")) for each in outputs)


@pytest.mark.multiprocess
def test_one_line_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = output("one_line_changed", tmp_path, monkeypatch)

    assert "2 replicas on 2 workers" in said
    assert "[worker 0] Epoch 3/3" in said
    assert "[worker 1] Epoch" not in said
    assert len(re.findall(r"TF_CONFIG='\{\"cluster\": \{\"worker\": \[", said)) == 2, said
    (accuracy,) = re.findall(r"Accuracy on digits that it has not seen: (\S+)%", said)
    assert float(accuracy) > 30


@pytest.mark.multiprocess
def test_custom_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = output("custom_loop", tmp_path, monkeypatch)

    assert "Number of devices: 2" in said
    assert len(re.findall(r"^Epoch \d, Loss: ", said, re.MULTILINE)) == 3
    ((newest, restored, saved),) = re.findall(r"Restored from (\S+): (\S+)%, when it was saved: (\S+)%", said)
    assert (newest, restored) == ("checkpoints/ckpt-3", saved)
    assert float(saved) > 85


@pytest.mark.multiprocess
def test_kill_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = output("kill_a_worker", tmp_path, monkeypatch)

    (victim,) = re.findall(r"Killed: (\d+)", said)
    assert re.search(
        rf"worker \d \(host \S+, pid {victim}\) .*, last seen after step \d+\. World 2: 2 workers from", said
    )
    (disturbed,) = re.findall(r"^with a kill: +(\d\.\d+)$", said, re.MULTILINE)
    (undisturbed,) = re.findall(r"^without a kill: +(\d\.\d+)$", said, re.MULTILINE)
    assert disturbed == undisturbed


@pytest.mark.multiprocess
def test_larger_than_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = output("larger_than_a_device", tmp_path, monkeypatch)

    assert re.findall(r"a device holds (\d+\.\d) MB", said) == ["75.6", "19.0"]  # biases are not worth dividing
    ((share, difference),) = re.findall(r"(\S+) of the memory, losses differ by (\S+)", said)
    assert (float(share), float(difference) < 1e-5) == (0.251, True)
    (predictions,) = re.findall(r"The predictions differ by (\S+)", said)
    assert float(predictions) < 1e-5
