"""Run a command, and kill a random worker of `stratagem run` again and again while it runs.

    python benchmarks/kill_every.py 10 -- \\
        stratagem run --ps 2 --workers 3 --max-restarts 1000 benchmarks/async_accuracy.py

kills one (kill -9) every 10 seconds, and says how many it killed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import time

from stratagem.testing.launched import tasks_of


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    choose, killed = random.Random(options.seed), 0
    begin = time.monotonic()
    with subprocess.Popen(options.command) as launcher:
        while launcher.poll() is None:
            try:
                launcher.wait(options.seconds)
            except subprocess.TimeoutExpired:
                tasks = tasks_of(launcher.pid)
                workers = [name for name in sorted(tasks) if name.startswith("worker")]
                if workers and "chief 0" in tasks:
                    victim = choose.choice(workers)
                    os.kill(tasks[victim], signal.SIGKILL)
                    killed += 1
                    print(f"killed {victim} after {time.monotonic() - begin:.0f} s", flush=True)
    print(f"{killed} workers were killed in {time.monotonic() - begin:.0f} s.")
    return launcher.returncode


if __name__ == "__main__":
    raise SystemExit(main())
