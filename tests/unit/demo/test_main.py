"""The command `stratagem demo`: what it says before and after, and the copy of its program."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stratagem.demo import __main__ as demo
from stratagem.launch.machine import Machine

Demo = Callable[..., int]


@pytest.fixture
def started() -> list[list[str]]:
    """The commands that were given to `stratagem`."""
    return []


@pytest.fixture
def stratagem_demo(monkeypatch: pytest.MonkeyPatch, started: list[list[str]]) -> Demo:
    """Call the command, whose launcher only notes what it was given, and ends with a code."""

    def call(*arguments: str, code: int = 0) -> int:
        def stratagem(command: list[str]) -> int:
            started.append(command)
            return code

        monkeypatch.setattr(sys, "argv", ["stratagem demo", *arguments])
        monkeypatch.setattr(demo, "stratagem", stratagem)
        return demo.main()

    return call


def test_it_shows_the_program_runs_it_and_says_what_is_next(
    stratagem_demo: Demo, started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert stratagem_demo("--epochs", "1") == 0
    assert started == [["run", "--workers", "2", "-m", "stratagem.demo.program", "--epochs", "1"]]
    out = capsys.readouterr().out
    assert out.startswith("Two workers train together, each a process of this machine: on 1,437 handwritten digits")
    assert "    strategy = stratagem.MultiWorkerMirroredStrategy()\n" in out
    assert "\n    with strategy.scope():\n        model = make_model()\n" in out
    assert "$ stratagem run --workers 2 -m stratagem.demo.program --epochs 1\n" in out
    assert f"The program is {demo.PROGRAM}." in out
    assert "stratagem run --workers 2 --spares 1 train.py" in out


@pytest.mark.parametrize(("workers", "begins"), [("1", "One worker trains,"), ("3", "3 workers train together,")])
def test_numbers_of_workers(
    workers: str, begins: str, stratagem_demo: Demo, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stratagem_demo("--workers", workers) == 0
    assert capsys.readouterr().out.startswith(begins)


@pytest.mark.parametrize(("gpus", "platforms"), [((), ""), (("0",), "cpu"), (("0", "1"), "")])
def test_with_fewer_gpus_than_workers_they_train_on_the_cpu(
    gpus: tuple[str, ...],
    platforms: str,
    stratagem_demo: Demo,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "")  # put back to what it was, also where the command sets it
    monkeypatch.setattr(demo, "this_machine", lambda: Machine(cores=(0, 1), num_cores=2, gpus=gpus))
    assert stratagem_demo() == 0
    assert os.environ["JAX_PLATFORMS"] == platforms
    assert ("more than this machine has GPUs (1)" in capsys.readouterr().out) is (platforms == "cpu")


def test_a_failure_is_the_last_word(stratagem_demo: Demo, capsys: pytest.CaptureFixture[str]) -> None:
    assert stratagem_demo(code=43) == 43
    assert "What to try next" not in capsys.readouterr().out


def test_a_copy_of_the_program(
    stratagem_demo: Demo,
    started: list[list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert stratagem_demo("--copy", "train.py") == 0
    assert capsys.readouterr().out == "train.py is written. Run it:\n    stratagem run --workers 2 train.py\n"
    assert Path("train.py").read_text() == demo.PROGRAM.read_text()
    assert stratagem_demo("--copy", "train.py") == 2
    assert stratagem_demo("--copy", "no/train.py") == 2
    assert stratagem_demo("--workers", "0") == 2
    errors = capsys.readouterr().err
    assert "stratagem: train.py is there already.\n  Why it matters: It would be overwritten." in errors
    assert "stratagem: no/train.py cannot be written: No such file or directory." in errors
    assert "Invalid value for '--workers'" in errors
    assert started == []
