from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from stratagem.core.clock import Clock
from stratagem.core.errors import InputError, PeerError
from stratagem.testing import run_workers

pytestmark = pytest.mark.multiprocess


@dataclass(frozen=True)
class Seen:
    """What a worker reports; a class of this file, to see that it travels."""

    task: dict[str, object]
    num_workers: int
    platforms: str
    devices: str | None
    words: tuple[str, ...]


def look_around(*words: str) -> Seen:
    config = json.loads(os.environ["TF_CONFIG"])
    return Seen(
        task=config["task"],
        num_workers=len(config["cluster"]["worker"]),
        platforms=os.environ["JAX_PLATFORMS"],
        devices=os.environ.get("JAX_NUM_CPU_DEVICES"),
        words=words,
    )


def own_index() -> int:
    return json.loads(os.environ["TF_CONFIG"])["task"]["index"]


def fail_on_worker_1() -> int:
    print("hello from", own_index())
    if own_index() == 1:
        raise ValueError("broken on purpose")
    return 5


def worker_1_waits_for_ever(folder: Path, cause: str) -> None:
    if own_index() == 1:
        print("waiting for godot", flush=True)
        (folder / "waiting").touch()
        threading.Event().wait()
    (folder / "pid").write_text(f"{os.getpid()}\n")
    if cause:
        raise ValueError(cause)


class ClockOfPatience(Clock):
    """Stands still until worker 0 has ended, seen by its parent, and worker 1 waits; then it is very late."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def now(self) -> float:
        pid = self._folder / "pid"
        if not ((self._folder / "waiting").exists() and pid.exists() and pid.read_text().endswith("\n")):
            return 0.0
        try:
            os.kill(int(pid.read_text()), 0)
        except ProcessLookupError:
            return 1000.0
        return 0.0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.quick
def test_function_runs_on_every_worker_and_returns() -> None:
    results = run_workers(look_around, 2, args=("a", "b"), devices_per_worker=3)

    assert [result.value for result in results] == [
        Seen({"type": "worker", "index": index}, 2, "cpu", "3", ("a", "b")) for index in (0, 1)
    ]
    assert [(result.index, result.returncode, result.output) for result in results] == [(0, 0, ""), (1, 0, "")]


@pytest.mark.quick
def test_env_wins() -> None:
    (result,) = run_workers(look_around, 1, env={"JAX_PLATFORMS": "tpu", "JAX_NUM_CPU_DEVICES": "7"})

    assert (result.value.platforms, result.value.devices) == ("tpu", "7")


@pytest.mark.quick
def test_script_gets_its_arguments(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:]); sys.exit(3)")
    results = run_workers(script, 2, args=["--epochs", 3], check=False)

    assert [(result.returncode, result.output, result.value) for result in results] == [
        (3, "['--epochs', '3']\n", None)
    ] * 2


SCRIPT = """
import dataclasses
import os
import sys
from stratagem.testing import run_workers
import beside

if os.environ.get("STRATAGEM_BLOCK_POINTS") and __name__ == "__main__":
    sys.exit("a worker began the program again")

@dataclasses.dataclass
class Of:
    script: str

def train():
    return Of(beside.NAME)

if __name__ == "__main__" or "unguarded" in os.environ:
    print([worker.value for worker in run_workers(train, 2)])
"""


def test_a_function_of_the_script_itself(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("NAME = 'a module beside it'")
    run = partial(subprocess.run, [sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert run().stdout == "[Of(script='a module beside it'), Of(script='a module beside it')]\n"

    unguarded = run(env={**os.environ, "unguarded": "yes"})
    assert unguarded.returncode == 1
    assert "UsageError: A worker was told to start workers while it loaded the file" in unguarded.stderr


@pytest.mark.thorough
def test_failure_shows_the_output_of_the_first_that_failed() -> None:
    with pytest.raises(PeerError) as error:
        run_workers(fail_on_worker_1, 2)

    message = str(error.value)
    assert message.startswith("worker 1 ended with exit code 1.\n")
    assert "hello from 1\nTraceback (most recent call last):" in message
    assert message.endswith("ValueError: broken on purpose")


def test_without_check_the_results_tell() -> None:
    results = run_workers(fail_on_worker_1, 2, check=False)

    assert [(result.returncode, result.value) for result in results] == [(0, 5), (1, None)]
    assert "ValueError: broken on purpose" in results[1].output


@pytest.mark.quick
def test_signal_in_the_returncode() -> None:
    (result,) = run_workers(die, 1, check=False)

    assert result.returncode == -signal.SIGKILL


def test_late_worker_is_named_with_its_last_output_and_killed(tmp_path: Path) -> None:
    clock = ClockOfPatience(tmp_path)
    with pytest.raises(PeerError) as error:
        run_workers(worker_1_waits_for_ever, 2, args=(tmp_path, ""), timeout_seconds=50, clock=clock)

    assert str(error.value) == (
        "These workers did not end within 50 s: worker 1.\n"
        "  Why it matters: The test would hang. They were killed.\n"
        "  What to do: Look at the last output of each worker.\n"
        "Last output of worker 1:\nwaiting for godot"
    )


def test_failure_counts_more_than_who_is_late_because_of_it(tmp_path: Path) -> None:
    with pytest.raises(PeerError) as error:
        run_workers(
            worker_1_waits_for_ever, 2, args=(tmp_path, "the cause"), check=False, clock=ClockOfPatience(tmp_path)
        )

    assert str(error.value).startswith(
        "worker 0 ended with exit code 1. These workers had not ended, and were killed: worker 1.\n"
    )
    assert "ValueError: the cause" in str(error.value)


@pytest.mark.quick
@pytest.mark.parametrize("program", [len, lambda: None, Seen], ids=["built-in", "lambda", "class"])
def test_function_that_no_other_process_could_find(program: object) -> None:
    with pytest.raises(InputError, match="Pass a function defined at the top level of a Python file"):
        run_workers(program, 1)  # pyright: ignore[reportArgumentType]


@pytest.mark.quick
def test_script_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"There is no file 'no_such\.py'\."):
        run_workers("no_such.py", 1)
