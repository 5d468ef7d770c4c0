"""Time of one training step of the tutorials' MNIST network, side by side, one core for each worker.

    python benchmarks/step_time.py [--rounds 10] [--steps 70] [--only NAME ...] [--write]

All contenders are started and warmed up, then take turns: an epoch each, in every round. So what else the
machine does meets them all alike, and each ratio compares two epochs that ran one after the other. README.md
says how to read the table. Linux only: it binds processes to cores.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from figures import Figure, rounded
from plots import bars
from processes import Contender
from rounds import Result, command, measured

WORKERS = ("worker", "worker")

REFERENCE = Contender("keras", "Keras on JAX", "mnist_cnn/plain_keras.py")
CONTENDERS = (
    REFERENCE,
    Contender("one", "Stratagem, OneDeviceStrategy", "mnist_cnn/with_stratagem.py"),
    Contender("two", "Stratagem, MultiWorkerMirroredStrategy", "mnist_cnn/with_stratagem.py", tasks=WORKERS),
    Contender(
        "backup", "the same, a backup every 30 steps", "mnist_cnn/with_stratagem.py", tasks=WORKERS, arguments=("30",)
    ),
    Contender("data-parallel", "Keras, DataParallel over Gloo", "mnist_cnn/keras_data_parallel.py", tasks=WORKERS),
    Contender("jax", "JAX by hand, one sum over Gloo", "mnist_cnn/jax_by_hand.py", tasks=WORKERS),
    Contender("torch", "PyTorch, DDP over Gloo", "mnist_cnn/torch_ddp.py", tasks=WORKERS, peer="torch"),
    Contender("horovod", "PyTorch, Horovod over Gloo", "mnist_cnn/torch_horovod.py", tasks=WORKERS, peer="horovod"),
    Contender(
        "tensorflow",
        "TensorFlow, MultiWorkerMirroredStrategy",
        "mnist_cnn/tensorflow_multi_worker.py",
        tasks=WORKERS,
        peer="tensorflow",
    ),
)


def table(results: Sequence[Result], reference: Contender = REFERENCE) -> str:
    """Return the results as a Markdown table, with ratios to the reference."""
    base = next(result for result in results if result.contender is reference)
    columns = "contender | workers | ms/step | quartiles | ratio | CPU ms/step | CPU ratio | loss | others | versions"
    lines = [f"| {columns} |", "| --- " * len(columns.split("|")) + "|"]
    for result in results:
        low, high = result.quartiles
        cells = [
            result.contender.title,
            str(result.contender.workers),
            rounded(result.ms),
            f"{rounded(low)}-{rounded(high)}",
            f"{result.ratio_to(base):.3f}",
            rounded(statistics.median(turn.cpu_ms for turn in result.turns)),
            f"{result.cpu_ratio_to(base):.3f}",
            f"{result.losses[len(result.turns)]:.3f}",
            f"{statistics.median(turn.others for turn in result.turns):.1%}",
            ", ".join(f"{name} {version}" for name, version in result.versions.items()),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(results: Sequence[Result]) -> list[Figure]:
    """Return what the suite shows of the results: the first is what the others are compared with."""
    base = results[0]
    times, memory = [], []
    for result in results:
        ratio, to = (None, "") if result is base else (result.ratio_to(base), base.title)
        times.append(Figure("step of the MNIST network", result.title, result.ms, "ms", ratio, to))
        ratio = None if result is base else result.peak_mib / base.peak_mib
        memory.append(Figure("most memory of a process of it", result.title, result.peak_mib, "MiB", ratio, to))
    return times + memory


def figures(plots: Path) -> list[Figure]:
    """Measure what the suite shows, and draw it in a folder."""
    results, _ = measured([each for each in CONTENDERS if each.name != "backup"], rounds=5, steps=70)
    heights = {result.contender.described: (result.ms, *result.quartiles) for result in results}
    own = [title for title in heights if title.startswith("Stratagem")]
    title = "One step of the tutorials' MNIST network, 64 rows for each worker"
    bars(plots / "step_time.svg", title, "ms", heights, own)
    peaks = {result.contender.described: (result.peak_mib, result.peak_mib, result.peak_mib) for result in results}
    bars(plots / "memory.svg", "Memory of a process that trains it", "MiB", peaks, own, shown="the most of all turns")
    return summary(results)


if __name__ == "__main__":
    title, rows = "Step of the MNIST network", "64 rows for each worker"
    sys.exit(command(__doc__, CONTENDERS, table, theme="step_time", title=title, rows=rows, reference=REFERENCE))
