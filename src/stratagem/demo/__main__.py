"""The command line of `stratagem demo`."""

from __future__ import annotations

import ast
import os
import shlex
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Final

import click

from stratagem.core import environment, exits
from stratagem.core.errors import InputError
from stratagem.demo.preparing import counted_seconds
from stratagem.launch.cli import main as stratagem
from stratagem.launch.machine import this_machine

PROGRAM: Final = Path(__file__).with_name("program.py")
"""The program of the workers."""

_MODULE: Final = "stratagem.demo.program"


@click.command(name="stratagem demo", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Workers on this machine.")
@click.option("--epochs", type=click.IntRange(min=1), default=3, show_default=True, help="Passes over the digits.")
@click.option("--copy", "copy", type=click.Path(path_type=Path), metavar="FILE", help="Write the program to FILE only.")
def _demo(workers: int, epochs: int, copy: Path | None) -> int:
    """Train the network of TensorFlow's tutorial on two workers of this machine, with handwritten digits.

    Program and digits come with Stratagem: nothing is downloaded.

    \b
    See it train:
        stratagem demo
    Change the program, and run it:
        stratagem demo --copy train.py
        stratagem run --workers 2 train.py
    """  # noqa: D301 - click keeps the lines below a backspace as they are
    if copy is not None:
        return _write(copy)
    num_gpus = len(this_machine().gpus)
    if 0 < num_gpus < workers:
        os.environ[environment.JAX_PLATFORMS] = "cpu"
        print(f"{workers} workers are more than this machine has GPUs ({num_gpus}): they train on its CPU.\n")
    command = ["run", "--workers", str(workers), "-m", _MODULE, "--epochs", str(epochs)]
    print(_introduction(workers, command), flush=True)
    with counted_seconds(sys.stdout, "Preparing ..."):
        code = stratagem(command)
    if code == 0:
        print(_what_next(workers), flush=True)
    return code


def _introduction(workers: int, command: list[str]) -> str:
    """Return what is said before the workers start."""
    number = {1: "One worker trains", 2: "Two workers train together"}.get(workers, f"{workers} workers train together")
    return f"""\
{number}, each a process of this machine: on 1,437 handwritten digits, judged by 360 others.
Each of them runs this program:

{textwrap.indent(essence(PROGRAM.read_text(encoding="utf-8")), "    ")}

$ stratagem {shlex.join(command)}

Before the first bar moves, each worker loads Keras and JAX and compiles a step: ten seconds or so, more the first time.
"""


def _what_next(workers: int) -> str:
    """Return what is said when all has gone well."""
    return f"""
The program is {PROGRAM}. To change it and run it:
    stratagem demo --copy train.py
    stratagem run --workers {workers} train.py

What to try next:
    stratagem run --workers 2 --spares 1 train.py    # training goes on when a worker is killed: stratagem help elastic
    stratagem top                                    # in another terminal, while it trains: stratagem help insight
    stratagem help                                   # all guides; several machines: stratagem help launching"""


def essence(program: str) -> str:
    r"""Return the function `train` of a program without its docstring: what a reader needs to see.

    Args:
        program: The text of the program.

    Example:
        >>> essence("import x\ndef train(n: int) -> None:\n    '''Do.'''\n    x(n)  # here\n\n    y()\n")
        'x(n)  # here\n\ny()'
    """
    train = next(each for each in ast.parse(program).body if isinstance(each, ast.FunctionDef) and each.name == "train")
    lines = program.splitlines()[train.body[1].lineno - 1 : train.end_lineno]
    return textwrap.dedent("\n".join(lines))


def _write(file: Path) -> int:
    """Write the program to a file that is not there yet.

    Raises:
        InputError: The file is there, or cannot be written.
    """
    if file.exists():
        raise InputError(f"{file} is there already.", "It would be overwritten.", "Name another file.")
    try:
        shutil.copyfile(PROGRAM, file)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}.", "Name a file in another folder.") from error
    print(f"{file} is written. Run it:\n    stratagem run --workers 2 {shlex.quote(str(file))}")
    return 0


def main() -> int:
    """Run the command line; return the exit code."""
    try:
        return _demo.main(prog_name="stratagem demo", standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except InputError as error:
        print(f"stratagem: {error}", file=sys.stderr)
        return exits.USAGE


if __name__ == "__main__":
    sys.exit(main())
