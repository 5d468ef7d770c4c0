"""The kinds of steps, and the state that Keras's trainer keeps for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax

State = tuple[list[jax.Array], ...]
"""Values of the model's variables, a list for each group of the step, as Keras's trainer keeps them."""


@dataclass(frozen=True)
class StepKind:
    """A kind of step: the model's method, the groups of variables in its state, and what Keras calls it by."""

    method: str
    groups: tuple[str, ...]
    function: str
    trains: bool = False


TRAIN = StepKind(
    "train_step",
    ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables"),
    "train_function",
    trains=True,
)
TEST = StepKind("test_step", ("trainable_variables", "non_trainable_variables", "metrics_variables"), "test_function")
PREDICT = StepKind("predict_step", ("trainable_variables", "non_trainable_variables"), "predict_function")


def group_variables(model: Any, group: str) -> list[Any]:
    """Return the variables of one group of a step's state, in the order of Keras's trainer."""
    if group == "optimizer_variables":
        return list(model.optimizer.variables)
    return list(getattr(model, group))


KIND_OF = {
    "fit": TRAIN,
    "train_on_batch": TRAIN,
    "evaluate": TEST,
    "test_on_batch": TEST,
    "predict": PREDICT,
    "predict_on_batch": PREDICT,
}
"""Which steps a method of the model runs."""
