"""What `fit` costs around the step: a small model with plain Keras and with Stratagem, one step or many at a time.

    python benchmarks/fit_overhead.py [--rounds 10] [--steps 640] [--write]

A network of one hidden layer, 32 rows, in one process on one core; the step itself takes a fraction of a millisecond.
All take turns, as in step_time.py, which has the same comparison for a network that computes. Linux only.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from figures import Figure
from processes import Contender
from rounds import Result, command, measured
from step_time import table

MANY = 32
"""Steps that one call of the compiled program takes, in the second half of the contenders."""


def contender(kind: str, steps: int) -> Contender:
    title = "Keras on JAX" if kind == "keras" else "Stratagem, OneDeviceStrategy"
    named = f"{title}, steps_per_execution={steps}" if steps > 1 else title
    return Contender(f"{kind}-{steps}", named, "small_model/fit.py", arguments=(kind, str(steps)))


REFERENCE = contender("keras", 1)
CONTENDERS = (REFERENCE, contender("stratagem", 1), contender("keras", MANY), contender("stratagem", MANY))


def summary(results: Sequence[Result]) -> list[Figure]:
    """Return what the suite shows of the results: ours beside Keras with as many steps at a time."""
    keras = {result.contender.arguments[1]: result for result in results if result.contender.arguments[0] == "keras"}
    rows = []
    for result in results:
        base = keras[result.contender.arguments[1]]
        ratio, to = (None, "") if result is base else (result.ratio_to(base), base.title)
        rows.append(Figure("step of `fit` of a small model", result.title, result.ms, "ms", ratio, to))
    return rows


def figures(plots: Path) -> list[Figure]:
    """Measure what the suite shows."""
    return summary(measured(CONTENDERS, rounds=7, steps=640)[0])


if __name__ == "__main__":
    beside, names = (
        partial(table, reference=REFERENCE),
        {"theme": "fit_overhead", "title": "Around the step of a small model", "rows": "32 rows"},
    )
    sys.exit(command(__doc__, CONTENDERS, beside, **names, steps=640, reference=REFERENCE))
