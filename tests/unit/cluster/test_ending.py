from __future__ import annotations

import sys

import pytest

from stratagem.cluster.ending import leave_at_once_on_failure


@pytest.mark.parametrize(("error", "code"), [(ValueError("boom"), 1), (KeyboardInterrupt(), 130)])
def test_an_uncaught_exception_is_shown_and_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    shown: list[BaseException] = []
    codes: list[int] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(error))
    leave_at_once_on_failure("worker 1", codes.append)
    sys.excepthook(type(error), error, None)
    assert (shown, codes) == ([error], [code])
    assert capsys.readouterr().err == "stratagem: worker 1 failed:\n"


def test_a_hook_that_fails_itself_does_not_keep_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("hook")

    codes: list[int] = []
    monkeypatch.setattr(sys, "excepthook", broken)
    leave_at_once_on_failure("worker 1", codes.append)
    with pytest.raises(RuntimeError, match="hook"):
        sys.excepthook(ValueError, ValueError(), None)
    assert codes == [1]


def test_an_interactive_prompt_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[BaseException] = []
    codes: list[int] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: shown.append(error))
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    leave_at_once_on_failure("worker 1", codes.append)
    sys.excepthook(ValueError, ValueError(), None)
    assert (len(shown), codes) == (1, [])
