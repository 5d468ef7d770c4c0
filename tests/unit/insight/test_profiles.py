from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from stratagem.core.errors import ClusterError
from stratagem.insight.profiles import ProfiledSteps, forget_earlier, join_traces


def test_steps_are_read_as_they_were_written(tmp_path: Path) -> None:
    steps = ProfiledSteps.of("20:30", tmp_path / "a:b")
    assert ProfiledSteps.read(steps.written()) == steps


@pytest.mark.parametrize("text", ["20", "0:3", "5:4", "a:b", "1:2:3", ""])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ClusterError, match="Write for instance --profile 20:30"):
        ProfiledSteps.of(text, Path("profile"))


def test_traces_are_joined_on_one_axis_of_time(tmp_path: Path) -> None:
    steps = ProfiledSteps(2, 3, tmp_path)
    assert join_traces(steps) is None
    steps.run_folder.mkdir(parents=True)
    for worker, began in (("worker-0", 5_000_000), ("worker-1", 2_000_000)):
        steps.beginning_of(worker).write_text(str(began))
        events = [
            {"ph": "M", "pid": 7, "name": "process_name", "args": {"name": "/host:CPU"}},
            {"ph": "M", "pid": 7, "name": "process_sort_index", "args": {"sort_index": 7}},
            {"ph": "X", "pid": 7, "tid": 1, "ts": 10.5, "dur": 2.0, "name": "step"},
            {},
        ]
        with gzip.open(steps.trace_of(worker), "wt", encoding="utf-8") as file:
            json.dump({"traceEvents": events}, file)
    joined = join_traces(steps)
    assert joined == tmp_path / "trace.json.gz"
    assert joined is not None
    with gzip.open(joined, "rt") as file:
        events = json.load(file)["traceEvents"]
    assert [event["ts"] for event in events if "ts" in event] == [3010.5, 10.5]
    assert [event["args"]["name"] for event in events if event["name"] == "process_name"] == [
        "worker-0 /host:CPU",
        "worker-1 /host:CPU",
    ]
    assert len({event["pid"] for event in events}) == 2
    steps.trace_of("worker-1").unlink()  # it was killed before it had written all
    assert join_traces(steps) == joined
    forget_earlier(steps)
    assert join_traces(steps) is None
