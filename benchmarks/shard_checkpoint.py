"""What saving a checkpoint of variables in shards costs: each worker its part, beside the chief all.

25 million weights in float32 with Adam, in shards (`shard="parameters"`) on pinned workers of this machine, which save
to one folder. `parts`: each worker writes its shards. `together`: variables are put together one after the other, and
the chief writes all, as where workers share no disk. Times, until `save` returns: both ways in one cluster, in turns,
so that a ratio compares neighbours in time. Memory: a cluster for each way, whose first save counts: the most that a
worker's process took in it, over what it took before.
Run `python benchmarks/shard_checkpoint.py [--workers N] [--rounds N] [--layers N]`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from shards import compiled, data_of, megabytes

import stratagem
from stratagem.checkpoint import collective_io
from stratagem.testing import run_workers

WAYS = ("parts", "together")


def managed(folder: str, workers: int, layers: int) -> stratagem.train.CheckpointManager:
    model = compiled(stratagem.MultiWorkerMirroredStrategy(shard="parameters"), layers)
    x, y = data_of(workers)
    model.fit(x, y, batch_size=16 * workers, verbose=0)
    return stratagem.train.CheckpointManager(stratagem.train.Checkpoint(model=model), folder, max_to_keep=1)


def go(way: str, folder: str) -> None:
    """Let workers save so from now on: the chief knows then whether all see a folder."""
    collective_io.shared_folders[os.path.abspath(folder)] = way == "parts"


def seconds_in_turns(folder: str, workers: int, rounds: int, layers: int) -> dict[str, tuple[list[float], list[float]]]:
    """Return what each way took as one worker: the seconds of each save, and the megabytes of the files."""
    manager = managed(folder, workers, layers)
    found: dict[str, tuple[list[float], list[float]]] = {
        f"{way} {kind}": ([], []) for way in WAYS for kind in ("at once", "behind")
    }
    for turn in range(rounds + 1):  # the first makes memory
        for name, (seconds, files) in found.items():
            go(name.split()[0], folder)
            options = stratagem.train.CheckpointOptions(enable_async=name.endswith("behind"))
            start = time.perf_counter()
            path = str(manager.save(options=options))
            blocked = time.perf_counter() - start
            manager.sync()
            if turn:
                seconds.append(blocked)
            lying = sorted(Path(folder).glob(f"{Path(path).name}.*safetensors"))
            files[:] = [file.stat().st_size / 1e6 for file in lying]
    return found


def memory(folder: str, workers: int, layers: int, way: str) -> float:
    """Return what the first save takes of one worker, in megabytes."""
    manager = managed(folder, workers, layers)
    go(way, folder)
    before = megabytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the most from here on
    manager.save()
    return megabytes("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7, help="the median of so many is shown")
    parser.add_argument("--layers", type=int, default=24, help="layers of a million weights")
    arguments = parser.parse_args()
    workers, layers = arguments.workers, arguments.layers
    taken: dict[str, list[float]] = {}
    for way in WAYS:
        with tempfile.TemporaryDirectory() as folder:
            results = run_workers(memory, workers, args=[folder, workers, layers, way], timeout_seconds=300)
            taken[way] = [each.value for each in results]
    with tempfile.TemporaryDirectory() as folder:
        args: list[Any] = [folder, workers, arguments.rounds, layers]
        found = run_workers(seconds_in_turns, workers, args=args, timeout_seconds=900)[0].value
    print("saving               s  ratio  MB of each file")
    for name, (own, files) in found.items():
        reference = found[name.replace("parts", "together")][0]
        ratio = statistics.median(a / b for a, b in zip(own, reference, strict=True))
        sizes = ", ".join(f"{size:.1f}" for size in files)
        print(f"{name:18} {statistics.median(own):5.2f}  {ratio:5.2f}  {sizes}")
    for way, each in taken.items():
        print(f"memory, {way}: {', '.join(f'{worker:.0f}' for worker in each)} MB")


if __name__ == "__main__":
    main()
