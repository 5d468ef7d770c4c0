"""Rows per second from record files larger than one likes in memory: ours, tf.data's and plain Grain's, side by side.

The files are written first: random records of one size, `--gigabytes` in all, in 8 files. Each contender is a process
of its own on one core, which reads batches of 128 records, in order and shuffled over all files, for `--seconds` at a
time; they take turns, and the ratios are medians of the rounds' own, by the clock and by the time that the process
worked, which is the steadier one on a busy machine. The last column is what the process added to its memory over the
measured turns: what was read must not stay. TensorFlow takes part where
`benchmarks/peers/tensorflow` has its environment, Grain where it is installed. Linux only.

    python benchmarks/record_rate.py [--gigabytes 2] [--kilobytes 10] [--rounds 5] [--seconds 2] [--write]
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from figures import Figure

BATCH = 128
FILES = 8
HERE = Path(__file__).parent
TENSORFLOW = HERE / "peers" / "tensorflow" / ".venv" / "bin" / "python"


Turns = list[dict[tuple[str, bool], dict[str, Any]]]
"""Of each round, what each contender answered, in order and shuffled."""


# Contenders: each yields batches of records without end ----------------------------------------------


def ours(kind: str, paths: list[str], shuffled: bool) -> Iterator[Any]:
    data: Any = importlib.import_module("stratagem.data")
    dataset = data.TFRecordDataset(paths) if kind == "tfrecord" else data.ArrayRecordDataset(paths)
    dataset = dataset.shuffle(len(dataset)) if shuffled else dataset
    return (batch.data for batch in dataset.repeat().batch(BATCH).batches())


def tf_data(kind: str, paths: list[str], shuffled: bool) -> Iterator[Any]:
    """Shuffle in a window of 2,000 records: tf.data cannot shuffle files as a whole."""
    tf: Any = importlib.import_module("tensorflow")
    dataset = tf.data.TFRecordDataset(paths)
    dataset = dataset.shuffle(2000) if shuffled else dataset
    return iter(dataset.repeat().batch(BATCH))


def grain(kind: str, paths: list[str], shuffled: bool) -> Iterator[Any]:
    pygrain: Any = importlib.import_module("grain")
    dataset = pygrain.MapDataset.source(pygrain.sources.ArrayRecordDataSource(paths)).seed(0)
    dataset = dataset.shuffle() if shuffled else dataset
    return iter(dataset.repeat().batch(BATCH, batch_fn=list).to_iter_dataset())


class Contender(NamedTuple):
    """One row of the table, and the row that it is compared with."""

    title: str
    read: Callable[[str, list[str], bool], Iterator[Any]]
    kind: str
    reference: str
    python: Path = Path(sys.executable)


CONTENDERS = {
    "ours-tfrecord": Contender("stratagem.data.TFRecordDataset", ours, "tfrecord", "tf.data"),
    "tf.data": Contender("tf.data.TFRecordDataset", tf_data, "tfrecord", "tf.data", TENSORFLOW),
    "ours-array-record": Contender("stratagem.data.ArrayRecordDataset", ours, "array_record", "grain"),
    "grain": Contender("grain.MapDataset of ArrayRecord", grain, "array_record", "grain"),
}


def contend(name: str, paths: list[str], core: int) -> None:
    """Be a contender: for each line of input `shuffled seconds`, read for so long and print what was read."""
    os.sched_setaffinity(0, {core})
    contender = CONTENDERS[name]
    streams = {shuffled: contender.read(contender.kind, paths, shuffled) for shuffled in (False, True)}
    for stream in streams.values():
        next(stream)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        shuffled, seconds = json.loads(line)
        before, start, worked = _resident(), time.perf_counter(), time.process_time()
        batches = 0
        while (elapsed := time.perf_counter() - start) < seconds:
            next(streams[shuffled])
            batches += 1
        rows, worked = batches * BATCH, time.process_time() - worked
        print(json.dumps({"rate": rows / elapsed, "cpu": rows / worked, "grown": _resident() - before}), flush=True)


def _resident() -> float:
    """Return the memory of this process that is not the page cache's, in MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return 0.0


# The run -------------------------------------------------------------------------------------------


def write_files(folder: Path, size: int, records: int) -> dict[str, list[str]]:
    """Write the same random records in both formats."""
    data: Any = importlib.import_module("stratagem.data")
    draw = random.Random(0)
    paths = {
        kind: [str(folder / f"{number}.{kind}") for number in range(FILES)] for kind in ("tfrecord", "array_record")
    }
    for tfrecord, array_record in zip(*paths.values(), strict=True):
        content = [draw.randbytes(size) for _ in range(records // FILES)]
        data.write_tfrecord(tfrecord, content)
        data.write_array_record(array_record, content)
    return paths


def start(name: str, paths: list[str], core: int) -> subprocess.Popen[str]:
    command = [str(CONTENDERS[name].python), __file__, "--contender", name, "--core", str(core), *paths]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    answer(process)
    # Stopped between its turns: what threads read ahead then would be counted as read in no time.
    process.send_signal(signal.SIGSTOP)
    return process


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"{process.args} ended with exit code {process.wait()}")
    return json.loads(line)


def turn(process: subprocess.Popen[str], shuffled: bool, seconds: float) -> dict[str, Any]:
    assert process.stdin is not None
    process.send_signal(signal.SIGCONT)
    process.stdin.write(json.dumps([shuffled, seconds]) + "\n")
    process.stdin.flush()
    found = answer(process)
    process.send_signal(signal.SIGSTOP)
    return found


def table(names: list[str], turns: Turns, size: int) -> str:
    lines = [
        "| reader | order | records/s | MB/s | ratio | ratio by CPU time | grown, MB |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in names:
        for shuffled in (False, True):
            own = [one[name, shuffled] for one in turns]
            rate = statistics.median(found["rate"] for found in own)
            peers = [one.get((CONTENDERS[name].reference, shuffled)) for one in turns]
            cells = [
                CONTENDERS[name].title,
                "shuffled" if shuffled else "in order",
                f"{rate:,.0f}",
                f"{rate * size / 1e6:,.0f}",
                _ratio(own, peers, "rate"),
                _ratio(own, peers, "cpu"),
                f"{sum(found['grown'] for found in own):.0f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _ratio(own: list[dict[str, Any]], peers: list[dict[str, Any] | None], unit: str) -> str:
    ratios = [found[unit] / peer[unit] for found, peer in zip(own, peers, strict=True) if peer]
    return f"{statistics.median(ratios):.2f}" if ratios else "-"


def measured(gigabytes: float, size: int, rounds: int, seconds: float) -> tuple[list[str], Turns]:
    """Write the files and let all contenders that can run read them in turns.

    Args:
        gigabytes: Of records, in each format.
        size: Of a record, in bytes.
        rounds: Turns of each contender and order that count.
        seconds: Of a turn.

    Returns:
        The contenders, and what each round found of each and each order.
    """
    present = {"tf.data": TENSORFLOW.exists(), "grain": importlib.util.find_spec("grain") is not None}
    names = [name for name in CONTENDERS if present.get(name, True)]
    core = min(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder), size, int(gigabytes * 1e9 / size))
        processes = {name: start(name, paths[CONTENDERS[name].kind], core) for name in names}
        turns = []
        for number in range(1 + rounds):
            order = names if number % 2 == 0 else names[::-1]
            turns.append({(name, s): turn(processes[name], s, seconds) for s in (False, True) for name in order})
        del turns[0]  # drains what was read ahead before the first turn
        for process in processes.values():
            process.send_signal(signal.SIGCONT)
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
    return names, turns


def summary(names: list[str], turns: Turns, size: int) -> list[Figure]:
    """Return what the suite shows of the results: shuffled reading, ours beside its reference where that took part."""
    rows = []
    for name in names:
        title, reference = CONTENDERS[name].title, CONTENDERS[name].reference
        rate = statistics.median(one[name, True]["rate"] for one in turns)
        ratio, to = None, ""
        if name != reference and reference in names:
            ratio = statistics.median(one[name, True]["rate"] / one[reference, True]["rate"] for one in turns)
            to = CONTENDERS[reference].title
        rows.append(Figure(f"reading records of {size / 1000:g} KB, shuffled", title, rate, "records/s", ratio, to))
    return rows


def figures(plots: Path) -> list[Figure]:
    """Measure what the suite shows."""
    size = 10_000
    return summary(*measured(gigabytes=0.2, size=size, rounds=4, seconds=0.5), size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of records, in each format")
    parser.add_argument("--kilobytes", type=float, default=10.0, help="of a record")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender and order")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn")
    parser.add_argument("--write", action="store_true", help="save the page under benchmarks/results")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    parser.add_argument("paths", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        contend(options.contender, options.paths, options.core)
        return
    pages: Any = importlib.import_module("pages")
    size = int(options.kilobytes * 1000)
    names, turns = measured(options.gigabytes, size, options.rounds, options.seconds)
    facts = [
        f"{options.gigabytes:g} GB of records of {options.kilobytes:g} KB in {FILES} files of each format, in the page "
        "cache",
        f"batches of {BATCH} on one core; {options.rounds} turns of {options.seconds:g} s, in every second round in "
        "reverse order",
        "shuffled: over all records, but tf.data in a window of 2,000",
    ]
    text = pages.page("Records from files", facts, table(names, turns, size))
    print(text)
    if options.write:
        print(pages.save(f"record_rate_{options.kilobytes:g}kb", text))


if __name__ == "__main__":
    main()
