"""Results of metrics inside `strategy.run`: those of all replicas, as in TensorFlow.

A metric sums what it counts in its variables, of which each replica has its own part until the step ends. Its result
is asked of the sums of these parts; the parts stay as they are. Inside `fit` each replica has the result of its rows,
and the logs are made of the sums after the step.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/keras/metrics/Metric
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from stratagem.mesh.packs import sum_over_replicas
from stratagem.mesh.variable_policies import Policy, policy_of
from stratagem.program.compat import innermost_scope
from stratagem.program.tracing import Replayable, TracedVariables, current_tracing, read
from stratagem.replica.context import ReplicaContext, current_replica_context, merging_context


def of_all_replicas(original: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """Wrap the access to a metric's attributes: metrics have a method `result` each of its own class.

    Args:
        original: `Metric.__getattribute__`.
    """

    def __getattribute__(self: Any, name: str) -> Any:
        found = original(self, name)
        if name != "result":
            return found
        context, tracing = current_replica_context() or merging_context(), current_tracing()
        if context is None or tracing is None or context.mean_gradients or context.strategy.mesh.size == 1:
            return found
        if innermost_scope() is not tracing.scope:  # the program, or we below, say what the variables hold
            return found
        return functools.partial(_result, self, found, context, tracing)

    return __getattribute__


def _result(
    metric: Any, result: Callable[..., Any], context: ReplicaContext, tracing: Replayable, *args: Any, **kwargs: Any
) -> Any:
    """Return the result of a metric whose variables hold what all replicas have counted."""
    counted = [variable for variable in metric.variables if policy_of(variable, metric=True) is Policy.SUM]
    before = {id(variable): value for variable, value in tracing.values}
    own = []
    for variable in counted:
        value = jax.lax.stop_gradient(tracing.scope.get_current_value(variable))
        own.append(context.share.masked(value, before.get(id(variable), value)))
    summing = functools.partial(sum_over_replicas, pack_bytes=context.strategy.pack_bytes)
    with TracedVariables(list(zip(counted, context.exchange.call(summing, own), strict=True))):
        return read(result(*args, **kwargs))
