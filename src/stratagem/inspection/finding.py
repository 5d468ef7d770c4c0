"""Finding: where the first NaN or infinity of a step came from, and its message."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from stratagem.core.errors import InputError, name_some
from stratagem.fit import compat

_SHOWN: Final = 8

_CONSEQUENCE: Final = "NaN spreads: all later steps, backups and saved models would hold it. Training has ended here."


@dataclass(frozen=True)
class Finding:
    """Where the first NaN or infinity came from; plain JSON.

    Args:
        step: The number of the step; the first step of `fit` is 1.
        last: The number of the last step that ran as one with it; `step` if the single step is known.
        loss: The loss after it, "nan", "inf" or a number as text; None if it has none.
        variables: Paths of variables that hold NaN or infinity after it.
        is_assigned: Whether they held NaN before it.
        inputs: Rows of the global batch that hold NaN or infinity, by the name of the array.
        operation: The name of the first operation that computed one, as "log"; None if none was found.
        result: Shape and dtype of its result.
        scope: The layers, losses or optimizers that it is in.
        layer: The names of the layers among these, as "backbone/dense"; None if none.
        line: The line of the user's program that asked for it; "" if none.
        replica: The number of the replica that computed it.
        worker: The number of that replica's worker.
        replicas: How many replicas there are.
        rows: Rows of the global batch that lead to it; None if no row is at fault.
        is_all_rows: Whether these are all such rows; otherwise there are others.
        batch_rows: How many rows the global batch has.
    """

    step: int
    last: int
    loss: str | None = None
    variables: Sequence[str] = ()
    is_assigned: bool = False
    inputs: Mapping[str, Sequence[int]] = field(default_factory=dict)
    operation: str | None = None
    result: str = ""
    scope: str = ""
    layer: str | None = None
    line: str = ""
    replica: int | None = None
    worker: int | None = None
    replicas: int = 1
    rows: Sequence[int] | None = None
    is_all_rows: bool = True
    batch_rows: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)

    def error(self, saved: str | None = None) -> InputError:
        """Return it as an error.

        Args:
            saved: Where it was saved; None if it was not saved.
        """
        parts = [self._what(), *self._where(), *self._rows(), *self._left()]
        folder = f" The state before the step, its batch and this finding are in {saved}." if saved else ""
        return InputError(
            " ".join(parts), _CONSEQUENCE, f"{self._remedy()} The model has the weights from before that step.{folder}"
        )

    @property
    def _name(self) -> str:
        return f"Step {self.step}" if self.last == self.step else f"One of steps {self.step} to {self.last}"

    def _what(self) -> str:
        if self.is_assigned:
            return (
                f"{name_some(map(repr, self.variables), _SHOWN)} held NaN before step {self.step}. No step computed "
                "it: it was assigned, or was there from the beginning."
            )
        if self.inputs:
            listed = "; ".join(f"{name} in {_rows(rows)}" for name, rows in self.inputs.items())
            return f"{self._name} was given NaN or infinity in its input: {listed} of {self.batch_rows}."
        if self.operation is None:
            return f"{self._name} produced NaN or infinity."
        return f"{self._name} computed NaN or infinity: `{self.operation}` was the first operation, in {self.result}."

    def _where(self) -> list[str]:
        if self.operation is None or self.inputs or self.is_assigned:
            return []
        place = f"layer {self.layer!r}" if self.layer else self.scope or "no layer: a loss, regularizer or metric"
        place = f"the gradient of {place}" if "transpose(" in self.scope else place
        replica = f" on replica {self.replica} of {self.replicas} (worker {self.worker})" if self.replicas > 1 else ""
        line = f", at {self.line}" if self.line else ""
        return [f"It is in {place}{line}{replica}."]

    def _rows(self) -> list[str]:
        if self.rows is None:
            return []
        more = "" if self.is_all_rows else ", and others"
        return [f"{_rows(self.rows).capitalize()}{more} of the {self.batch_rows} of its global batch led to it."]

    def _left(self) -> list[str]:
        loss = [f"The loss after it is {self.loss}."] if self.loss is not None else []
        if self.variables and not self.is_assigned:
            loss.append(f"NaN or infinity came into {name_some(map(repr, self.variables), _SHOWN)}.")
        return loss

    def _remedy(self) -> str:
        if self.is_assigned:
            return "Look for a callback or another part of the program that assigns these variables."
        if self.inputs:
            return "Leave out these rows, or replace their NaN and infinity: numpy.nan_to_num(x), dataset.filter(...)."
        if self.rows is not None:
            return (
                "Look at these rows. Keep the inputs of the operation small, and away from zero: "
                "keras.ops.maximum(x, 1e-7), a division by the standard deviation of each feature."
            )
        if self.operation is not None:
            return (
                "No single rows lead to it, so look at the weights. Try a smaller learning rate or "
                "clipnorm=1.0, and look for an operation that gets zero."
            )
        return 'Inspect(nonfinite="locate") reports which layer computed it, and from which rows.'


def layer_in(model: Any, scope: str) -> str | None:
    """Return the names of the layers that an operation is in, as "backbone/dense"; None if it is in none.

    Args:
        model: The model.
        scope: As "sequential/dense", or of its gradient "transpose(jvp(sequential))/dense".
    """
    names = {layer.name for layer in compat.layers_of(model)} - {model.name}
    return "/".join(dict.fromkeys(part for part in re.split(r"[/()]+", scope) if part in names)) or None


def _rows(rows: Sequence[int]) -> str:
    return f"row{'s' if len(rows) != 1 else ''} {name_some(map(str, rows), 2 * _SHOWN)}"
