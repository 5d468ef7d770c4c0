"""Run a program with its random numbers fixed: `python seeded.py 7 program.py --epochs 2`.

The examples draw new weights at every run, as the tutorials do; one start in thirty is slow enough to fail a bound on
a loss. A test runs them from a seed, and may then ask for the very numbers of another run.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import keras


def main() -> None:
    seed, program, *arguments = sys.argv[1:]
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path(program).parent)  # what Python itself puts there for a script
    keras.utils.set_random_seed(int(seed))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
