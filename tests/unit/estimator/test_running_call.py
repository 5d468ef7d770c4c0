"""The call of a model function that is running: what it collects and counts."""

from __future__ import annotations

import pytest

from stratagem.core.errors import UsageError
from stratagem.estimator import get_global_step, get_or_create_global_step, identity
from stratagem.estimator.running_call import Call, Scope, calling, current_call, running_call


def test_a_call_is_there_while_it_runs() -> None:
    call = Call("train", "the step")
    with calling(call):
        assert current_call("anything") is call
        assert get_or_create_global_step() == get_global_step() == "the step"
        assert identity(3, "three") == 3
        assert identity(4) == 4
        call.collect("losses", [1])
        call.collect("losses", [2])
    assert (call.named, call.collections) == ({"three": 3}, {"losses": [1, 2]})
    assert running_call() is None
    assert get_global_step() is None
    with pytest.raises(UsageError, match=r"get_or_create_global_step\(\) was called outside a model_fn"):
        get_or_create_global_step()


def test_scopes_are_reused_on_request() -> None:
    scope = Scope("maker")
    scope.reuse_variables()
    assert (scope.name, scope.reuse) == ("maker", True)
