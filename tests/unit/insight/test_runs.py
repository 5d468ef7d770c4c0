from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from stratagem.core.errors import ClusterError
from stratagem.insight import runs
from stratagem.insight.runs import Listing, folder_of_runs, known_runs


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(runs.tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path


def test_a_run_is_listed_while_it_lasts(tmp_path: Path) -> None:
    assert known_runs() == []
    with Listing("train.py", 5.0) as listing:
        listing.write({"worker 0": tmp_path / "0.counters"}, [(6.0, "worker 1 failed.")])
        (run,) = known_runs()
        assert (run.pid, run.command, run.began) == (os.getpid(), "train.py", 5.0)
        assert run.files == {"worker 0": str(tmp_path / "0.counters")}
        assert run.events == [(6.0, "worker 1 failed.")]
    assert not any(path.name.startswith("stratagem-runs") for path in tmp_path.iterdir())
    assert known_runs() == []


def test_what_a_launcher_left_that_was_killed_is_removed() -> None:
    path = folder_of_runs() / "1.json"
    entry = {"pid": 2**22 + 1, "command": "a", "began": 1.0, "files": {}, "events": []}
    path.write_text(json.dumps(entry))
    assert known_runs() == []
    assert not path.exists()


def test_what_is_no_entry_is_passed_over() -> None:
    for number, text in enumerate(("", "[]", "{}", '{"pid": "x"}')):
        (folder_of_runs() / f"{number}.json").write_text(text)
    assert known_runs() == []


def test_a_folder_that_others_can_write_is_refused(own_folder: Path) -> None:
    folder = folder_of_runs()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(ClusterError, match="not a private folder of this user"):
        known_runs()
    folder.rmdir()
    (own_folder / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(own_folder / "elsewhere")
    with pytest.raises(ClusterError, match="not a private folder of this user"):
        known_runs()
    with Listing("train.py", 5.0) as listing:  # a run trains without an entry
        listing.write({}, [])
