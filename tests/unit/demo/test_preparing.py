"""The line that counts seconds: below what is written, and gone when a bar moves."""

from __future__ import annotations

import io

from tests.clock import HandClock

from stratagem.demo.preparing import Foot, counted_seconds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_makes_room_and_is_gone_with_the_first_bar() -> None:
    terminal, clock = Terminal(), HandClock()
    foot = Foot(terminal, "Preparing ...", clock)
    foot.write("one\n")
    clock.wait(2.2)
    foot.tick()
    foot.write("two\n")
    clock.wait(1.0)
    foot.tick()
    foot.write("1/23 ━━")
    foot.tick()
    assert terminal.getvalue() == "one\n\r\x1b[KPreparing ... 2 s\r\x1b[Ktwo\n\r\x1b[KPreparing ... 3 s\r\x1b[K1/23 ━━"
    assert (foot.is_over, foot.isatty()) == (True, True)


def test_standard_output_goes_through_while_seconds_are_counted() -> None:
    terminal = Terminal()
    with counted_seconds(terminal, "Preparing ..."):
        print("one")
    assert terminal.getvalue().endswith("one\n")


def test_nothing_is_counted_where_nobody_looks(capsys: object) -> None:
    file = io.StringIO()
    with counted_seconds(file, "Preparing ..."):
        print("to standard output itself")
    assert file.getvalue() == ""
