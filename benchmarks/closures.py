"""Small functions through a coordinator: how many a second, and what they cost in memory.

stratagem run --ps 1 --workers 2 benchmarks/closures.py --number 100000
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import stratagem


def resident_bytes() -> int:
    """Return the memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=20_000)
    number = parser.parse_args().number
    strategy = stratagem.ParameterServerStrategy()
    coordinator = stratagem.coordinator.ClusterCoordinator(strategy)

    def nothing(x: int) -> int:
        return x

    for _ in range(1000):  # every worker has the function, every buffer its size
        coordinator.schedule(nothing, args=(1,))
    coordinator.join()
    for tenth in range(10):
        begin, before = time.perf_counter(), resident_bytes()
        for i in range(number // 10):
            coordinator.schedule(nothing, args=(i,))
        coordinator.join()
        rate = number / 10 / (time.perf_counter() - begin)
        print(f"tenth {tenth}: {rate:.0f} closures/s, {(resident_bytes() - before) / 1024:+.0f} KiB")


if __name__ == "__main__":
    main()
