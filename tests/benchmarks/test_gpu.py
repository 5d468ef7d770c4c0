"""The benchmarks of GPUs: who takes part on which devices, what the page makes of the turns, which pieces it keeps."""

from __future__ import annotations

import doctest
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Script = Callable[[str], Any]


@pytest.fixture
def gpu(script: Script) -> Any:
    return script("gpu")


def results(script: Script, gpu: Any, piece: str, gpus: Sequence[str], times: dict[str, list[float]]) -> list[Any]:
    """Return the results of the contenders that have times of a step, one for each round."""
    size = gpu.WORKLOADS["resnet50" if piece == "input" else piece].size
    turn, versions = script("processes").Turn, {"device": "a GPU", "torch": "2.13"}
    return [
        script("rounds").Result(each, versions, [1.0], [turn(ms, ms, 1.0, 0.0, 100.0) for ms in times[each.name]])
        for each in gpu.contenders(piece, "gpu", gpus, size)
        if each.name in times
    ]


def test_all_contenders_share_the_first_gpu_and_stratagem_has_all_once_more(gpu: Any) -> None:
    size = gpu.WORKLOADS["gpt2"].size
    two = {each.name: each.gpus for each in gpu.contenders("gpt2", "gpu", ["4", "7"], size)}
    assert two == {"keras": ("4",), "stratagem": ("4",), "all": ("4", "7"), "torch": ("4",)}
    assert [each.name for each in gpu.contenders("gpt2", "gpu", ["0"], size)] == ["keras", "stratagem", "torch"]
    assert {each.gpus for each in gpu.contenders("input", "gpu", ["4", "7"], size)} == {("4",)}
    rehearsed = gpu.contenders("mnist", "cpu", [], size, compiles=True)
    assert {each.gpus for each in rehearsed} == {()}
    assert [each.arguments[3:] for each in rehearsed] == [(), (), ("compile",)]


def test_processes_with_gpus_see_these_and_share_their_memory(
    script: Script, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    variables, size = script("processes")._variables, gpu.WORKLOADS["mnist"].size
    every = gpu.contenders("mnist", "gpu", ["4", "7"], size)[2]
    found = variables(every, ["127.0.0.1:1"], 0)
    names = ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_PREALLOCATE")
    assert [found[name] for name in names] == ["cuda,cpu", "4,7", "false"]
    rehearsed = variables(gpu.contenders("mnist", "cpu", [], size)[0], ["127.0.0.1:1"], 0)
    assert [rehearsed.get(name) for name in (*names, "OMP_NUM_THREADS")] == ["cpu", "-1", None, "1"]


def test_rates_are_of_all_devices_and_ratios_of_the_rounds_own(script: Script, gpu: Any) -> None:
    times = {"keras": [100.0, 80.0, 90.0], "all": [100.0, 160.0, 90.0], "torch": [50.0, 80.0, 45.0]}
    found = gpu.figures("gpt2", results(script, gpu, "gpt2", ["0", "1"], times), gpu.WORKLOADS["gpt2"].size)
    tokens = 8 * 1024
    assert [(each.value, each.unit, each.ratio, each.to) for each in found] == [
        (pytest.approx(tokens / 0.09), "tokens/s", None, ""),
        (pytest.approx(2 * tokens / 0.1), "tokens/s", 2.0, "Keras on JAX"),
        (pytest.approx(tokens / 0.05), "tokens/s", 2.0, "Keras on JAX"),
    ]
    assert found[2].what == "PyTorch, torch 2.13"
    assert found[0].heading == "GPT-2, 12 blocks, 768 wide, 1024 tokens, 8 rows, mixed bfloat16, AdamW"


def test_input_is_compared_with_a_batch_that_lies_on_the_device(script: Script, gpu: Any) -> None:
    of_input = results(script, gpu, "input", ["0"], {"resident": [64.0, 64.0], "dataset": [80.0, 80.0]})
    [whole, fed] = gpu.figures("input", of_input, gpu.WORKLOADS["resnet50"].size)
    assert (whole.value, fed.value, fed.unit, fed.ratio) == (2000.0, 1600.0, "images/s", 0.8)
    assert fed.heading.startswith("input keeps it busy: ResNet-50, 224 px, 128 rows")


def test_every_contender_has_the_same_rows(gpu: Any, script: Script) -> None:
    workloads = script("workloads")
    for name, workload in gpu.WORKLOADS.items():
        size = workload.size_on("cpu", 3)
        assert size.rows == 3
        rows, again = (gpu.drawn(workload, size) for _ in range(2))
        assert {len(array) for array in rows.values()} == {3}, name
        assert all((rows[key] == again[key]).all() for key in rows), name
        assert rows["y"].max() < size.classes
    assert workloads.repeated(np.arange(6).reshape(3, 2), 5).tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]


def piece(gpu: Any, value: float, **more: Any) -> dict[str, Any]:
    figure = gpu.Figure("MNIST", "Keras on JAX", value, "images/s")
    made = {"device": "A GPU 80GB", "gpus": 1, "versions": {"jax": "0.10"}, "rows": 64, "steps": 500}
    made |= {"figures": [gpu.asdict(figure)], "milliseconds": {"keras": [1.0, 1.0, 1.5]}, "losses": {"keras": [2.0]}}
    return {**made, "left_out": [], "command": "python benchmarks/gpu.py", **more}


def test_pieces_that_are_measured_later_join_those_of_the_day(
    gpu: Any, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script("pages"), "RESULTS", tmp_path)
    gpu.save({"mnist": piece(gpu, 1.0), "input": piece(gpu, 2.0)})
    words, numbers = gpu.save({"resnet50": piece(gpu, 3.0), "mnist": piece(gpu, 4.0)})
    assert words.name.startswith("gpu_1-x-a-gpu-80gb_20")
    found = json.loads(numbers.read_text())["pieces"]
    assert [(name, each["figures"][0]["value"]) for name, each in found.items()] == [
        ("resnet50", 3.0),
        ("mnist", 4.0),
        ("input", 2.0),
    ]
    assert words.read_text().count("Keras on JAX") == 3


def test_the_page_names_who_was_left_out_and_is_no_result_where_it_was_rehearsed(gpu: Any) -> None:
    page = gpu.text_of({"mnist": piece(gpu, 1.0, left_out=["PyTorch: no environment."])})
    assert page.startswith("# Training on GPUs, ")
    assert "- mnist: left out: PyTorch: no environment.\n" in page
    assert "- devices: 1 x A GPU 80GB\n" in page
    assert "rounds: 3, steps of a turn: 500, rows of a device: 64; the slowest turn was 50% above its median" in page
    assert gpu.text_of({"mnist": piece(gpu, 1.0, gpus=0)}).startswith("# Rehearsal on the CPU: no results, ")


def test_without_a_gpu_nothing_is_measured(gpu: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--only", "mnist"]) == 2
    assert "What to do: run `make gpu` where there is one" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--rounds", "0"], ["--rows", "0"]])
def test_what_cannot_be_measured_is_refused(gpu: Any, options: list[str]) -> None:
    with pytest.raises(SystemExit):
        gpu.main(options)


def test_examples(gpu: Any, script: Script) -> None:
    assert doctest.testmod(gpu) == (0, 1)
    assert doctest.testmod(script("workloads")) == (0, 1)
