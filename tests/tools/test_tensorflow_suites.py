from __future__ import annotations

import json
import subprocess
import sys
import unittest
from pathlib import Path

import pytest
from tools.tensorflow_suites.case import Journal
from tools.tensorflow_suites.results import Case, Results, report
from tools.tensorflow_suites.shims import clusters
from tools.tensorflow_suites.verdicts import BEGAN, ELSEWHERE, FAILED, NOT_APPLICABLE, PASSED, WORKERS

ROOT = Path(__file__).parents[2]
SUITE = Path(__file__).parent / "suite" / "tensorflow" / "python" / "distribute"


def test_a_report_counts_what_applies() -> None:
    cases = [
        Case("a", 1, PASSED, ""),
        Case("b", 1, PASSED, ""),
        Case("c", 2, FAILED, "ValueError: no\nmore"),
        Case("d", 1, NOT_APPLICABLE, "an accelerator: a TPU"),
    ]
    assert report(cases).splitlines() == [
        "2 of 3 applicable cases pass (66.7 %); 1 fail.",
        "",
        "Not applicable: 1",
        "      1  an accelerator",
        "",
        "Failures:",
        "      1  ValueError: no",
    ]


def lines(path: Path, *outcomes: tuple[str, str]) -> None:
    written = [{"case": case, "outcome": outcome, "reason": ""} for case, outcome in outcomes]
    path.write_text("".join(json.dumps(line) + "\n" for line in written))


def test_what_one_worker_has_not_ended_failed_on_both_and_is_not_begun_again(tmp_path: Path) -> None:
    results, file = Results(tmp_path), Path("suite/python/distribute/some_test.py")
    first, second = (Path(f"{results.path(file, 2)}.{index}") for index in range(2))
    lines(first, ("a", BEGAN), ("a", PASSED), ("b", BEGAN), ("b", PASSED), ("c", BEGAN))
    lines(second, ("a", BEGAN), ("a", PASSED), ("b", BEGAN))
    results.settle(file, 2)
    assert [(case.name, case.outcome) for case in results.cases()] == [("a", PASSED), ("b", FAILED), ("c", FAILED)]
    assert Journal(first).known == Journal(second).known == {"a", "b", "c"}


def test_files_whose_cases_are_all_for_one_worker_are_not_run_by_two(tmp_path: Path) -> None:
    results, file = Results(tmp_path), Path("suite/python/distribute/some_test.py")
    assert results.asks(file, 2)  # Nothing is known yet.
    lines(Path(f"{results.path(file, 1)}.0"), ("a", PASSED))
    assert results.asks(file, 1)
    assert not results.asks(file, 2)
    with Path(f"{results.path(file, 1)}.0").open("a") as more:
        more.write(json.dumps({"case": "b", "outcome": ELSEWHERE, "reason": f"{WORKERS}: 2"}) + "\n")
    assert results.asks(file, 2)
    assert not results.asks(file, 4)


class _Ended(Exception):
    pass


def test_a_worker_ends_where_another_stays_in_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(code: int) -> None:
        raise _Ended(code)

    monkeypatch.setattr("tools.tensorflow_suites.case.TOGETHER", 0)
    monkeypatch.setattr("tools.tensorflow_suites.case.os._exit", ended)
    test, (own, other) = unittest.FunctionTestCase(print, description="some case"), (tmp_path / "0", tmp_path / "1")
    journal = Journal(own, [other])
    lines(other, (test.id(), BEGAN))
    journal.startTest(test)
    with pytest.raises(_Ended):
        journal.stopTest(test)
    lines(other, (test.id(), BEGAN), (test.id(), FAILED), ("the next", BEGAN))
    journal.startTest(test)
    journal.stopTest(test)


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_a_suite_runs_as_it_is_written(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.tensorflow_suites", str(SUITE), "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    outcomes = {(case.name.partition("example_test.")[2], case.workers): case for case in Results(tmp_path).cases()}
    passed = {name for name, case in outcomes.items() if case.outcome == PASSED}
    assert sorted(name.partition("_distribution_")[2].removesuffix("_mode_eager") for name, _ in passed) == [
        "CentralStorageCPUAndGPU",
        "Default",
        "Mirrored2CPUs",
        "Mirrored2GPUs",
        "MirroredCPUAndGPU",
        "MultiWorkerMirrored2x1CPU",
        "OneDeviceCPU",
        "OneDeviceGPU",
    ]
    failed = {name: case.reason for (name, _), case in outcomes.items() if case.outcome == FAILED}
    assert sorted(failed) == ["ExampleTest.test_fails", "ExampleTest.test_process_ends"]
    assert failed["ExampleTest.test_fails"].startswith("AssertionError: ")
    assert failed["ExampleTest.test_process_ends"].startswith("its process ended, or was stopped")
    left_out = sorted({case.reason for case in outcomes.values() if case.outcome == NOT_APPLICABLE})
    assert left_out == [
        "a private name of TensorFlow: attribute _packed_variable",
        "a private name of TensorFlow: tensorflow.python.distribute.values.DistributedDelegate",
        "an accelerator: a TPU",
        "graphs and sessions of TensorFlow 1",
    ]


def test_no_port_is_picked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = iter([4001, 4001, 4002])

    class Probe(clusters.socket.socket):
        def getsockname(self) -> tuple[str, int]:
            return "127.0.0.1", next(offered)

    monkeypatch.setattr(clusters.socket, "socket", Probe)
    monkeypatch.setattr(clusters, "_picked", set())
    assert [clusters.pick_unused_port(), clusters.pick_unused_port()] == [4001, 4002]
