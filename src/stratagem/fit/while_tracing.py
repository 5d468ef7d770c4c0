"""Replacements of Keras's functions while a step is traced on a replica (`core.patches`, Extent.STEP).

Each replacement asks which replica is being traced (`current_replica_context`); where none is, as in other threads, it
calls Keras's own function. `Step` and `program.tracing.Replayable` enter the context.
"""

from __future__ import annotations

from stratagem.core import patches
from stratagem.fit import gradients, losses, own_steps, results_in_run
from stratagem.fit.step_kinds import PREDICT, TEST, TRAIN


def install() -> None:
    """Name what is replaced whenever a step is traced from now on. A second call does nothing."""
    patches.install(
        __name__,
        {
            "Optimizer.stateless_apply": gradients.reducing_stateless_apply,
            "LossScaleOptimizer.stateless_apply": gradients.reducing_stateless_apply,
            "Optimizer.apply": gradients.reducing_apply,
            "reduce_values": losses.sharing_reduce_values,
            "apply_mask": losses.sharing_apply_mask,
            "Dice.call": losses.seeing_all_rows,
            "Tversky.call": losses.seeing_all_rows,
            "Circle.call": losses.seeing_all_rows,
            "JAXTrainer.compute_loss_and_updates": losses.summing_rows,
            "nn.moments": losses.sharing_moments,
            "Metric.__getattribute__": results_in_run.of_all_replicas,
            **{f"JAXTrainer.{kind.method}": own_steps.also_of_data_alone(kind) for kind in (TRAIN, TEST, PREDICT)},
        },
    )
