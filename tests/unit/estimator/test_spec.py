"""`EstimatorSpec`: what each mode needs, and what becomes of hooks."""

from __future__ import annotations

from typing import Any

import pytest

from stratagem.core.errors import InputError
from stratagem.estimator import EstimatorSpec, ModeKeys, Scaffold, SessionRunHook
from stratagem.estimator.spec import metric_of


@pytest.mark.parametrize(
    ("mode", "needed"),
    [(ModeKeys.TRAIN, ["loss", "train_op"]), (ModeKeys.EVAL, ["loss"]), (ModeKeys.PREDICT, ["predictions"])],
)
def test_each_mode_needs_its_own(mode: str, needed: list[str]) -> None:
    given: dict[str, Any] = dict.fromkeys(needed, 1.0)
    assert EstimatorSpec(mode, **given).mode == mode
    for name in needed:
        with pytest.raises(InputError, match=f"for mode '{mode}' has no {name}"):
            EstimatorSpec(mode, **{**given, name: None})


def test_hooks_become_tuples() -> None:
    hook = SessionRunHook()
    spec = EstimatorSpec(ModeKeys.PREDICT, predictions=1, prediction_hooks=[hook], training_hooks=None)
    assert (spec.prediction_hooks, spec.training_hooks) == ((hook,), ())
    with pytest.raises(InputError, match="EstimatorSpec was given evaluation_hooks with 'x'"):
        EstimatorSpec(ModeKeys.PREDICT, predictions=1, evaluation_hooks=["x"])


def test_pairs_and_scaffolds() -> None:
    assert metric_of(("metric", 0.5)) == "metric"
    assert metric_of("metric") == "metric"
    scaffold = Scaffold(init_fn=lambda scaffold, session: None)
    assert scaffold.finalize() is scaffold
    with pytest.raises(InputError, match="Scaffold was given summary_op='all'"):
        Scaffold(summary_op="all")
