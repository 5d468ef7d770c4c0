"""`tf.compat.v1.app`: reads the flags, and runs the program; the flags of `tf.compat.v1.flags`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from absl import app
from absl import flags as absl_flags

from stratagem.tf.namespace import explaining


class _Flags:
    """The flags of absl, which read the command line where a program asks for the first value (`flags.FLAGS`).

    absl alone refuses before `app.run`. Many programs read a flag at their top, which TensorFlow lets them.
    Source of the semantics: https://github.com/tensorflow/tensorflow/blob/v2.16.1/tensorflow/python/platform/flags.py
    """

    def __getattr__(self, name: str) -> Any:
        if name in absl_flags.FLAGS and not absl_flags.FLAGS.is_parsed():
            absl_flags.FLAGS(sys.argv)
        return getattr(absl_flags.FLAGS, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(absl_flags.FLAGS, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(absl_flags.FLAGS, name)

    def __contains__(self, name: str) -> bool:
        return name in absl_flags.FLAGS

    def __getitem__(self, name: str) -> absl_flags.Flag:
        return absl_flags.FLAGS[name]

    def __iter__(self) -> Iterator[str]:
        return iter(absl_flags.FLAGS)

    def __call__(self, argv: Sequence[str], known_only: bool = False) -> list[str]:
        return absl_flags.FLAGS(argv, known_only)


FLAGS: Final = _Flags()


def run(main: Callable[[list[str]], Any] | None = None, argv: list[str] | None = None) -> None:
    """Read the flags, call `main(argv)`, and end the process (`tf.compat.v1.app.run`).

    Arguments that are not known flags are passed to `main`, as in TensorFlow.

    Args:
        main: The function to call; None for `main` of the file that was started.
        argv: The name of the program and its arguments; None for those of the process.
    """
    app.run(
        main or sys.modules["__main__"].main,
        argv,
        flags_parser=lambda arguments: absl_flags.FLAGS(arguments, known_only=True),
    )


class _FlagsModule:
    """`tf.compat.v1.app.flags`: `tf.compat.v1.flags`, by its other name."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(f"{__package__}.flags"), name)


flags: Final = _FlagsModule()

__getattr__ = explaining(__name__)
