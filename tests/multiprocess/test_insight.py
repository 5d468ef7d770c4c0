"""What a run shows of itself: slow workers by name, the table, the page, metrics and lines of JSON; real workers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from stratagem.launch.machine import free_ports

pytestmark = pytest.mark.multiprocess

PROGRAM = Path(__file__).with_name("trains_slowly.py")
ROOT = Path(__file__).parents[2]


def _run(*arguments: object, options: tuple[object, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stratagem", "run", "--workers", "2", *options, PROGRAM, *arguments]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=150, check=True)


@pytest.mark.parametrize("part", ["input", "computing", "between"])
def test_a_slow_worker_is_named_with_what_it_is_slow_in(part: str) -> None:
    ended = _run(part, 25, 1, 420)
    named = re.findall(
        r"\[worker 0\] (worker \d) \(host .*, pid \d+\) is slow: it ([^0-9]+) ([0-9.]+) ms", ended.stdout
    )
    what = {"input": "waits for its input", "computing": "computes", "between": "spends time between steps"}[part]
    assert [(name, said) for name, said, _ in named] == [("worker 1", what)]
    assert 10 < float(named[0][2]) < 40
    assert f"worker 1 is slow: it {what}" in ended.stderr  # below the table


def test_a_run_shows_what_its_time_was_spent_on(tmp_path: Path) -> None:
    page, lines = tmp_path / "run.html", tmp_path / "run.jsonl"
    options = ("--report", page, "--log-json", lines, "--metrics-port", 0)
    ended = _run("between", 40, 0, 150, options=options)

    table = ended.stderr[ended.stderr.index("Time of the steps") :].splitlines()
    rows = {row.split()[1]: row.split()[2:] for row in table if row.startswith("  worker") and "%" in row}
    assert sorted(rows) == ["0", "1"]
    between, waiting = int(rows["0"][6].rstrip("%")), int(rows["1"][3].rstrip("%"))
    assert between > 50
    assert waiting > 50
    assert "stratagem: metrics at http://127.0.0.1:" in ended.stderr
    last = {said["task"]: said for said in map(json.loads, lines.read_text().splitlines())}
    assert [last[f"worker {i}"]["steps"] for i in range(2)] == [150, 150]
    assert last["worker 0"]["spent"]["between"] > 150 * 0.035
    assert 0 < last["worker 0"]["loss"] < 10
    assert page.read_text().count("<svg") == 5


ON_HOSTS = """
import runpy, sys
from tests.hosts import be_on_hosts

be_on_hosts("ab")
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_the_launcher_of_worker_0_shows_the_workers_of_all_machines(tmp_path: Path) -> None:
    """Two launchers, as on two machines: the workers say that they are on host-a and host-b."""
    script = tmp_path / "train.py"
    script.write_text(ON_HOSTS.replace("sys.argv[0]", repr(str(PROGRAM))))
    (port,) = free_ports(1)
    launcher = [sys.executable, "-m", "stratagem", "run", "--nodes", "2", "--coordinator", f"127.0.0.1:{port}"]
    program = [str(script), "between", "40", "1", "200"]
    files = [tmp_path / f"{rank}.jsonl" for rank in range(2)]
    runs = [
        subprocess.Popen(
            [*launcher, "--node-rank", str(rank), "--log-json", str(file), *program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        )
        for rank, file in enumerate(files)
    ]
    said = [run.communicate(timeout=150) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said

    lines = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    assert [{line["task"] for line in each} for each in lines] == [{"worker 0", "worker 1"}, {"worker 1"}]
    far = [line for line in lines[0] if line["task"] == "worker 1"]
    near = [line for line in lines[1] if line["task"] == "worker 1"]
    assert {line["host"] for line in far} == {"host-b"}
    assert far[-1]["pid"] == near[-1]["pid"]
    assert 150 <= far[-1]["steps"] <= near[-1]["steps"] == 200
    assert far[-1]["spent"]["between"] > 150 * 0.035
    largest = max(line["memory"] for line in near)
    assert 0.5 * largest < far[-1]["memory"] <= 1.1 * largest
    assert "worker 1 (host-b)" in said[0][1]
    assert "worker 1 is slow: it spends time between steps" in said[0][1]
    assert "worker 0" not in said[1][1].partition("Time of the steps")[2]


def test_a_run_can_be_watched_while_it_trains(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stratagem", "run", "--workers", "2", "--metrics-port", "0", PROGRAM]
    command += ["between", "20", "0", "600"]
    run = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stderr is not None
    try:
        address = re.search(r"http://(\S+)/metrics", run.stderr.readline())
        assert address is not None
        while "auto-shard" not in run.stdout.readline():  # it trains from here on
            pass
        top = [sys.executable, "-m", "stratagem", "top", "--once"]
        here = subprocess.run([*top, str(run.pid)], capture_output=True, text=True, timeout=60, check=True).stdout
        there = subprocess.run([*top, address[1]], capture_output=True, text=True, timeout=60, check=True).stdout
        for shown in (here, there):
            assert re.search(r"worker 0 +\d+ +\d+ ", shown)
            assert re.search(r"worker 1 +\d+ +\d+ ", shown)
        with urllib.request.urlopen(f"http://{address[1]}/metrics", timeout=10) as answer:
            assert 'stratagem_steps_total{task="worker 1"}' in answer.read().decode()
    finally:
        run.terminate()
        run.communicate(timeout=60)
    gone = subprocess.run([*top, str(run.pid)], capture_output=True, text=True, timeout=60, check=False)
    assert (gone.returncode, f"There is no run {run.pid}" in gone.stderr) == (2, True)
