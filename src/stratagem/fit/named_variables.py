"""Names of a model's variables that are the same in each run of a program, and on each worker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from stratagem.fit.own_steps import own_step
from stratagem.fit.step_kinds import TRAIN, group_variables

METRICS: Final = "metrics_variables"
_BEYOND: Final = "beyond"
"""Variables that a model's own step uses and Keras does not keep, such as those of a second optimizer."""


def named_variables(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield a model's variables by name, with those of its optimizer and its metrics.

    Args:
        model: A compiled model.
    """
    for place, variable in _placed(model):
        yield _name(place, variable), variable


def shown_names(model: Any) -> dict[str, str]:
    """Return what messages of this process call a model's variables, by name: with the numbers of layers.

    Args:
        model: A compiled model.
    """
    return {_name(place, variable): f"{place}/{variable.path}" for place, variable in _placed(model)}


def _name(place: str, variable: Any) -> str:
    # Keras counts layers up over the life of a process: dense_1, dense_4.
    return f"{place}/{re.sub(r'_[0-9]+', '', variable.path)}"


def _placed(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield a model's variables with the group and place of each."""
    groups = {group: group_variables(model, group) for group in TRAIN.groups}
    own = own_step(model, TRAIN)
    groups[_BEYOND] = [] if own is None else own.beyond
    for group, variables in groups.items():
        for i, variable in enumerate(variables):
            yield f"{group}/{i}", variable


def is_variable(name: str) -> bool:
    """Whether a name is one of these."""
    return name.partition("/")[0] in (*TRAIN.groups, _BEYOND)
