"""Time of one training step of an Estimator beside that of `fit` on the same model, side by side, each on one core.

    python benchmarks/estimator.py [--rounds 10] [--steps 100] [--write]

Contenders take turns, as in step_time.py. Linux only: it binds processes to cores.
"""

from __future__ import annotations

import sys
from functools import partial

from processes import Contender
from rounds import command
from step_time import table

FIT = Contender("fit", "fit", "mnist_cnn/with_stratagem.py")
CONTENDERS = (
    FIT,
    Contender("estimator", "Estimator", "mnist_cnn/with_estimator.py"),
    Contender("hooks", "Estimator, three hooks that do nothing", "mnist_cnn/with_estimator.py", arguments=("3",)),
)


if __name__ == "__main__":
    beside, names = (
        partial(table, reference=FIT),
        {"theme": "estimator", "title": "Estimator beside fit", "rows": "64 rows"},
    )
    sys.exit(command(__doc__, CONTENDERS, beside, **names, steps=100, reference=FIT))
