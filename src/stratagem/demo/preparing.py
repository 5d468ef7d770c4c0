"""A line that counts the seconds at the foot of a terminal, until the first bar moves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Final, TextIO

from stratagem.core.clock import Clock

_BAR: Final = "━"
_ERASED: Final = "\r\x1b[K"
_SECONDS: Final = 0.5


class Foot:
    """A terminal that shows one more line below what is written to it, until a bar is written.

    Args:
        terminal: Where all goes.
        text: What the line says; the seconds follow.
        clock: Where time comes from.
    """

    def __init__(self, terminal: TextIO, text: str, clock: Clock) -> None:
        self._terminal = terminal
        self._text = text
        self._clock = clock
        self._start = clock.now()
        self._lock = threading.Lock()
        self._is_shown = False
        self.is_over = False

    def write(self, text: str) -> int:
        """Write text above the line."""
        with self._lock:
            self.is_over = self.is_over or _BAR in text
            erased = _ERASED if self._is_shown else ""
            self._is_shown = False
            return self._terminal.write(erased + text)

    def tick(self) -> None:
        """Show the line as it is now."""
        with self._lock:
            if not self.is_over:
                self._is_shown = True
                self._terminal.write(f"{_ERASED}{self._text} {self._clock.now() - self._start:.0f} s")
                self._terminal.flush()

    def end(self) -> None:
        """Take the line away for good."""
        self.write("")
        self.is_over = True
        self.flush()

    def flush(self) -> None:
        """Pass on what the terminal holds back."""
        self._terminal.flush()

    def isatty(self) -> bool:
        """Whether this is a terminal."""
        return self._terminal.isatty()

    def fileno(self) -> int:
        """Return the terminal's number."""
        return self._terminal.fileno()


@contextmanager
def counted_seconds(terminal: TextIO, text: str) -> Iterator[None]:
    """Count seconds below what the block writes to standard output; does nothing where that is no terminal.

    Args:
        terminal: Standard output.
        text: What is being waited for.
    """
    if not terminal.isatty():
        yield
        return
    foot, over = Foot(terminal, text, Clock()), threading.Event()

    def count() -> None:
        while not foot.is_over and not over.wait(_SECONDS):
            foot.tick()

    counter = threading.Thread(target=count, name="stratagem-demo-seconds")
    counter.start()
    try:
        with redirect_stdout(foot):  # pyright: ignore[reportArgumentType] - what a terminal is written to by
            yield
    finally:
        over.set()
        counter.join()
        foot.end()
