"""What the tasks' facts say when they are laid side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stratagem.cluster.spec import ClusterSpec
from stratagem.core.findings import Finding, has_failed, passed, table
from stratagem.doctor import facts


def task(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "task": f"worker {number}",
        "clock": 1000.0,
        "versions": {"jax": "0.9", "keras": "3.12"},
        "devices": ["H100", "H100"],
        "free": 2**40,
        "fault": None,
        **changes,
    }


def found(*all_facts: dict[str, Any]) -> dict[str, Finding]:
    return {finding.check: finding for finding in facts.compare(all_facts, "/backup")}


def test_equal_tasks_pass() -> None:
    together = found(task(0), task(1, clock=1000.5))
    assert {check: finding.verdict for check, finding in together.items()} == dict.fromkeys(
        ["versions", "devices", "clocks", "backup"], "ok"
    )
    assert together["devices"].found == "2 H100 on each of 2 task(s)"
    assert together["clocks"].found == "at most 0.50 s apart"
    assert together["backup"].found == "worker 0 writes to /backup, 1024 GiB free"


@pytest.mark.parametrize(
    ("changes", "check", "verdict", "said"),
    [
        ({"versions": {"jax": "0.9", "keras": "3.13"}}, "versions", "FAIL", "jax 0.9, keras 3.13 on worker 1"),
        ({"devices": ["H100", "A100"]}, "devices", "warn", "1 H100, 1 A100 on worker 1"),
        ({"clock": 1007.25}, "clocks", "warn", "worker 1 is 7.2 s ahead of worker 0"),
        ({"clock": 900.0}, "clocks", "warn", "worker 0 is 100.0 s ahead of worker 1"),
        ({"fault": "Read-only file system"}, "backup", "ok", "worker 1 cannot write there and need(s) not"),
    ],
)
def test_what_differs_is_named(changes: dict[str, Any], check: str, verdict: str, said: str) -> None:
    finding = found(task(0), task(1, **changes), task(2))[check]
    assert finding.verdict == verdict
    assert said in finding.found
    assert bool(finding.repair) == (verdict != "ok")


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        ({"fault": "Read-only file system"}, "FAIL", "worker 0 cannot write to /backup: Read-only file system"),
        ({"free": 2**30}, "warn", "/backup has 1.0 GiB free on worker 0"),
    ],
)
def test_the_chief_has_to_write(changes: dict[str, Any], verdict: str, said: str) -> None:
    finding = found(task(0, **changes), task(1))["backup"]
    assert (finding.verdict, said in finding.found) == (verdict, True)


def test_facts_of_this_process(tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    own = facts.own_facts("worker 0", str(folder), wall_clock=lambda: 5.0)
    assert (own["clock"], own["fault"], own["devices"][0], len(own["devices"])) == (5.0, None, "cpu", 4)
    assert own["free"] > 0
    assert set(own["versions"]) == {"python", "stratagem", "jax", "jaxlib", "keras", "numpy"}
    assert list(folder.iterdir()) == []

    (tmp_path / "file").touch()
    assert "Not a directory" in facts.own_facts("worker 0", str(tmp_path / "file" / "backup"))["fault"]


def test_names_that_nobody_knows() -> None:
    finding = facts.check_names(ClusterSpec({"worker": ["127.0.0.1:1", "host.invalid:2"], "ps": ["[::1]:3"]}))
    assert finding.verdict == "FAIL"
    assert "cannot look up worker 1 (host.invalid)" in finding.found
    assert facts.check_names(ClusterSpec({"worker": ["127.0.0.1:1", "localhost:2"]})).verdict == "ok"


def test_table_wraps_and_counts_failures() -> None:
    findings = [passed("names", "fine"), Finding("all-reduce", "warn", "word " * 30, "Do this.\nThen that.")]
    lines = table(findings).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[2].startswith("all-reduce  warn     word word")
    assert lines[-2:] == [" " * 21 + "-> Do this.", " " * 21 + "   Then that."]
    assert not has_failed(findings)
    assert has_failed([*findings, Finding("x", "FAIL", "")])
