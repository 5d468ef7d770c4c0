"""The command `stratagem help`: what goes to a pipe, to a pager, and to standard error."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import click
import pytest

from stratagem.help.__main__ import main

Help = Callable[..., int]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def stratagem_help(monkeypatch: pytest.MonkeyPatch) -> Help:
    def call(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["stratagem help", *arguments])
        return main()

    return call


@pytest.fixture
def in_terminal(stratagem_help: Help, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, list[str]]]:
    """Return what a terminal shows at once, and what its pager gets."""

    def call(*arguments: str) -> tuple[str, list[str]]:
        terminal, paged = Terminal(), []
        with monkeypatch.context() as here:
            here.setattr(sys, "stdout", terminal)
            here.setattr(click, "echo_via_pager", paged.append)
            assert stratagem_help(*arguments) == 0
        return terminal.getvalue(), paged

    return call


def test_list_of_topics(stratagem_help: Help, capsys: pytest.CaptureFixture[str]) -> None:
    assert stratagem_help() == 0
    out = capsys.readouterr().out
    assert out.startswith("Guides, each shown by `stratagem help TOPIC`:\n\n  architecture ")
    assert len(out.splitlines()) > 20


@pytest.mark.parametrize("words", [["data#order"], ["data", "order"], ["data", "Order"]])
def test_a_section(words: list[str], stratagem_help: Help, capsys: pytest.CaptureFixture[str]) -> None:
    assert stratagem_help(*words) == 0
    assert capsys.readouterr().out.startswith("## Order\n")


def test_a_terminal_gets_a_pager(in_terminal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown, paged = in_terminal("data")
    assert [text.startswith("\x1b[1m# Data\x1b[0m\n") for text in paged] == [True]
    assert shown == ""


def test_no_color(in_terminal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    _, paged = in_terminal("data")
    assert [text.startswith("# Data\n") for text in paged] == [True]


@pytest.mark.parametrize(
    ("argument", "said"), [("dta", "stratagem: There is no topic 'dta'."), ("--no-such", "Error: No such option")]
)
def test_mistakes(argument: str, said: str, stratagem_help: Help, capsys: pytest.CaptureFixture[str]) -> None:
    assert stratagem_help(argument) == 2
    assert said in capsys.readouterr().err
