from __future__ import annotations

import json
from pathlib import Path

import pytest

from stratagem.core.counters import CountersFile, file_of_other_hosts
from stratagem.core.progress import Phase, Progress
from stratagem.core.spent import Spent
from stratagem.insight import observer as observing
from stratagem.insight import samples as sampling
from stratagem.insight.observer import MOST_EVENTS, Observer
from stratagem.insight.samples import Sample


def _task(path: Path) -> Progress:
    progress = Progress(file=CountersFile(path))
    progress.join()
    return progress


def test_it_samples_the_tasks_that_there_are(tmp_path: Path) -> None:
    seen: list[dict[str, Sample]] = []
    observer = Observer("train.py", listeners=[lambda samples: seen.append(dict(samples))])
    files = {f"worker {i}": tmp_path / f"{i}.counters" for i in range(2)}
    observer.follow(files)
    assert observer.look() == {}
    first = _task(files["worker 0"])
    first.enter(Phase.OUTSIDE, 3)
    assert observer.look()["worker 0"].steps == 3
    _task(files["worker 1"])
    observer.look()
    assert [sorted(each) for each in seen] == [[], ["worker 0"], ["worker 0", "worker 1"]]
    assert [sample.steps for sample in observer.histories["worker 0"].samples] == [3, 3]
    observer.follow({"worker 0": tmp_path / "other"})
    assert observer.look() == {}
    assert list(observer.present()) == ["worker 0"]


def test_it_knows_tasks_of_other_hosts_until_others_follow(tmp_path: Path) -> None:
    observer = Observer("train.py")
    file = tmp_path / "0.counters"
    observer.follow({"worker 0": file})
    _task(file).enter(Phase.OUTSIDE, 3)
    other = Sample(1.0, 1.0, 22, 5, "computing", Spent(), 0.5, 1, joined=True, host="b")
    file_of_other_hosts(file).write_text(json.dumps({"worker 1": other.as_dict()}))
    observer.look()
    assert observer.present()["worker 1"] == other
    assert observer.as_dict()["tasks"]["worker 1"]["host"] == "b"
    assert list(observer.files) == ["worker 0"]
    observer.follow({"worker 0": tmp_path / "next"})
    assert list(observer.present()) == ["worker 0"]
    assert observer.histories["worker 1"].last == other


def test_it_names_a_slow_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def sample(path: Path) -> Sample:
        waits = path.name == "0"
        spent = Spent(computing=now * (0.4 if waits else 0.9), exchanging=now * 0.1, waiting=now * 0.5 * waits)
        return Sample(now, now, 11, int(20 * now), "computing", spent, 0.5, 1, joined=True)

    monkeypatch.setattr(sampling, "take_sample", sample)
    told: list[str] = []
    observer = Observer("train.py", tell=told.append)
    observer.follow({"worker 0": tmp_path / "0", "worker 1": tmp_path / "1"})
    for second in range(12):
        now = float(second)
        observer.look()
    assert (list(observer.stragglers), observer.stragglers["worker 1"].part) == (["worker 1"], "computing")
    assert told == [event.text for event in observer.events]
    assert [event.text[:39] for event in observer.events] == ["worker 1 is slow: it computes 25.0 ms l"]


def test_it_keeps_the_first_events_and_says_all_in_json(tmp_path: Path) -> None:
    observer = Observer("train.py --epochs 3")
    for number in range(MOST_EVENTS + 10):
        observer.note(f"\nevent {number}\nmore of it")
    assert (len(observer.events), observer.events[0].text) == (MOST_EVENTS, "event 0")
    observer.follow({"worker 0": tmp_path / "0"})
    _task(tmp_path / "0").enter(Phase.STEP, 1)
    observer.look()
    said = json.loads(json.dumps(observer.as_dict(), allow_nan=False))
    assert (said["command"], said["tasks"]["worker 0"]["steps"]) == ("train.py --epochs 3", 1)
    assert said["events"][0][1] == "event 0"


def test_a_listener_whose_disk_is_full_does_not_end_it(tmp_path: Path) -> None:
    def fails(samples: object) -> None:
        raise OSError("No space left on device")

    observer = Observer("train.py", listeners=[fails])
    observer.follow({"worker 0": tmp_path / "0"})
    _task(tmp_path / "0")
    assert list(observer.look()) == ["worker 0"]


def test_its_thread_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "SAMPLE_SECONDS", 0.001)
    _task(tmp_path / "0")
    observer = Observer("train.py")
    observer.follow({"worker 0": tmp_path / "0"})
    with observer:
        while observer.histories["worker 0"].last is None:
            pass
    assert not observer._thread.is_alive()
