from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from tests.clock import HandClock

from stratagem.core.counters import CountersFile
from stratagem.core.errors import ClusterError
from stratagem.core.progress import Phase, Progress
from stratagem.core.spent import Spent
from stratagem.insight import runs
from stratagem.insight.metrics import MetricsServer
from stratagem.insight.observer import Observer
from stratagem.insight.runs import Listing
from stratagem.insight.samples import Sample
from stratagem.insight.top import View, look_at_address, look_at_run, show

SECRET = b"a secret that is long enough"


def _view(second: int) -> View:
    quick = Spent(computing=0.4 * second, exchanging=0.1 * second, waiting=0.5 * second)
    slow = Spent(computing=0.9 * second, exchanging=0.1 * second)
    samples = [
        Sample(float(second), float(second), 11 + i, 20 * second, "computing", spent, 0.5, 100 << 20, True)
        for i, spent in enumerate((quick, slow))
    ]
    return View(
        "train.py", 0.0, {f"worker {i}": each for i, each in enumerate(samples)}, [(1.0, "generation 2 begins")]
    )


def _shown(look: object, *, terminal: bool = False) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=150, _environ={})
    show(look, console, HandClock(), looks=12 if terminal else None)
    return console.file.getvalue()


def test_rates_and_shares_are_those_between_looks() -> None:
    views = iter([_view(1), _view(2)])
    text = _shown(lambda: next(views))
    rows = {line.split()[1]: line.split() for line in text.splitlines() if line.startswith("worker")}
    assert rows["0"][2:] == ["11", "40", "20.0", "40%", "10%", "50%", "0%", "0%", "0%", "0%", "100", "MB", "compute"]
    assert rows["1"][2:] == ["12", "40", "20.0", "90%", "10%", "0%", "0%", "0%", "0%", "0%", "100", "MB", "compute"]
    assert "step 40" in text
    assert "loss 0.5" in text
    assert "generation 2 begins" in text


def test_queues_are_shown_of_those_that_have_one() -> None:
    view = _view(2)
    view.tasks["worker 1"] = view.tasks["worker 1"]._replace(ready=0)
    view.tasks["chief"] = view.tasks["worker 0"]._replace(pending=1500)
    lines = _shown(lambda: view).splitlines()
    assert lines[1].split()[-4:] == ["memory", "ready", "pending", "now"]
    rows = {line.split("  ")[0]: line.split() for line in lines}
    assert rows["worker 0"][-3:] == ["100", "MB", "compute"]
    assert rows["worker 1"][-4:] == ["100", "MB", "0", "compute"]
    assert rows["chief"][-4:] == ["100", "MB", "1,500", "compute"]


def test_a_slow_worker_is_named_and_the_end_is_said() -> None:
    views = iter([*map(_view, range(1, 12)), None])
    text = _shown(lambda: next(views), terminal=True)
    assert "worker 1 is slow: it computes 25.0 ms longer" in text
    assert text.rstrip().endswith("The run has ended.")


def test_a_run_of_this_machine_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs.tempfile, "gettempdir", lambda: str(tmp_path))
    with pytest.raises(ClusterError, match="This user has no run on this machine"):
        look_at_run(None)
    progress = Progress(file=CountersFile(tmp_path / "0"))
    progress.enter(Phase.INPUT, 4)
    with Listing("train.py", 5.0) as listing:
        listing.write({"worker 0": tmp_path / "0", "worker 1": tmp_path / "1"}, [])
        with pytest.raises(ClusterError, match=r"There is no run 1 .*there are:\n    \d+  train.py"):
            look_at_run(1)
        look = look_at_run(None)
        view = look()
        assert view is not None
        assert [(name, sample.steps, sample.doing) for name, sample in view.tasks.items()] == [("worker 0", 4, "input")]
    assert look() is None


def test_a_run_elsewhere_is_asked_with_the_token(tmp_path: Path) -> None:
    observer = Observer("train.py")
    observer.follow({"worker 0": tmp_path / "0"})
    observer.histories["worker 0"].add(_view(3).tasks["worker 0"])
    with MetricsServer(observer, 0, SECRET) as server:
        address = f"127.0.0.1:{server.address.rpartition(':')[2]}"
        with pytest.raises(ClusterError, match="answered 401"):
            look_at_address(address, b"")()
        look = look_at_address(address, SECRET)
        view = look()
        assert view is not None
        assert view.tasks == {"worker 0": _view(3).tasks["worker 0"]}
    assert look() is None
    with pytest.raises(ClusterError, match="No run answers at"):
        look_at_address(address, SECRET)()
