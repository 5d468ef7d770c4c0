"""`tf.compat.v1.app`: reads the flags, and runs the program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from absl import app
from absl import flags as flags

from stratagem.tf.namespace import explaining


def run(main: Callable[[list[str]], Any] | None = None, argv: list[str] | None = None) -> None:
    """Read the flags, call `main(argv)`, and end the process (`tf.compat.v1.app.run`).

    Arguments that are no flags known are handed to `main`, as in TensorFlow.

    Args:
        main: The program; None takes `main` of the file that was started.
        argv: Name of the program and its arguments; None takes those of the process.
    """
    app.run(
        main or sys.modules["__main__"].main,
        argv,
        flags_parser=lambda arguments: flags.FLAGS(arguments, known_only=True),
    )


__getattr__ = explaining(__name__)
