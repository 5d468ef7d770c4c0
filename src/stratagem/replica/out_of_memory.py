"""Errors of devices that have no room for a step, with what to write so that they have."""

from __future__ import annotations

from stratagem.core.errors import explain, is_explanation
from stratagem.mesh.shards import Stage
from stratagem.replica.context import StrategyLike


def note_out_of_memory(error: BaseException, strategy: StrategyLike) -> None:
    """Add to an error of XLA that memory is short what a strategy can do about it. Other errors stay as they are.

    Args:
        error: What a step raised, or the making of a model.
        strategy: Whose step or model.
    """
    is_noted = any(map(is_explanation, getattr(error, "__notes__", ())))  # by a step inside a scope
    if is_noted or not isinstance(error, RuntimeError) or "ut of memory" not in str(error):
        return
    replicas = strategy.num_replicas_in_sync
    stage = None if strategy.sharding is None else strategy.sharding.stage
    if stage is None and replicas > 1:
        held = f"Each of {replicas} replicas holds the whole of weights, gradients and the optimizer's slots."
        remedy = (
            'Divide them among the replicas: shard="parameters" when the strategy is made '
            "(see `stratagem help sharding`)."
        )
    elif stage is not None and stage is not Stage.PARAMETERS:
        held = f'With shard="{stage.value}" each of {replicas} replicas holds all weights.'
        remedy = 'Divide them too: shard="parameters".'
    else:
        held = "A device does not have enough memory for a step."
        remedy = 'Give fewer rows in a batch, or more devices with shard="parameters".'
    error.add_note(
        explain(
            held, "With Adam, weights, gradients and slots together take four times the memory of the weights.", remedy
        )
    )
