"""The program behind `stratagem replay`: `python -m stratagem.replay`."""

from __future__ import annotations

import contextlib
import sys
import traceback

import click

from stratagem.cluster.bootstrap import current_peers
from stratagem.core.errors import InputError, StratagemError
from stratagem.core.script import running_script
from stratagem.fit.instead import giving
from stratagem.replay.again import Result, Wanted
from stratagem.replay.point import Chooser, ReplayedError
from stratagem.strategy.base import prepare_fit

_WRONG_USE = 2
"""Exit code where no step was run again."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--backup", required=True, metavar="DIR")
@click.option("--step", required=True, type=click.IntRange(min=1), metavar="N")
@click.option("--until-differs", is_flag=True)
@click.option("--times", type=click.IntRange(min=2), metavar="K")
@click.option("--locate", is_flag=True)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(
    backup: str,
    step: int,
    until_differs: bool,
    times: int | None,
    locate: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run a step of SCRIPT again. The exit code is 0 if all runs had the same bits, 1 if not, 2 after an error."""
    wanted = Wanted(backup, step, times if until_differs else times or 2, locate)
    try:
        result = replayed(wanted, script, arguments)
    except StratagemError as error:
        print(f"stratagem: {error}", file=sys.stderr)
        sys.exit(_WRONG_USE)
    except Exception:
        traceback.print_exc()
        print(f"stratagem: {script} failed before step {step}.", file=sys.stderr)
        sys.exit(_WRONG_USE)
    peers = current_peers()
    if peers is None or peers.own_index == 0:
        print(result.text, flush=True)
    sys.exit(0 if result.is_same else 1)


def replayed(wanted: Wanted, script: str, arguments: tuple[str, ...] = ()) -> Result:
    """Run a script up to one of its steps, and run that step repeatedly.

    Args:
        wanted: The step.
        script: The script. Its output goes to standard error.
        arguments: The arguments of its command line.

    Raises:
        InputError: It has no such step, or there is no backup from before the step.
        CheckpointError: The backup cannot be read.
    """
    act = running_script(script, arguments, "stratagem replay --backup DIR --step 120 train.py")
    prepare_fit()  # a program may train without a strategy
    chooser = Chooser(wanted)
    end: object = None
    try:
        with giving(chooser), contextlib.redirect_stdout(sys.stderr):
            act()
    except ReplayedError as done:
        return done.result
    except SystemExit as error:
        end = error.code
    calls = "no call of `fit` with a"
    if chooser.fits:
        calls = f"{chooser.fits} call{'s' if chooser.fits > 1 else ''} of `fit`, but none with a"
    raise InputError(
        f"{script} ended{f' with {end!r}' if end else ''}; it has {calls} BackupAndRestore.",
        "The `fit` that made a backup runs a step again from the state of the backup.",
        "Name the training program, with the same arguments as before: stratagem replay --backup DIR --step 120 "
        "train.py --epochs 3",
    )


if __name__ == "__main__":
    main(prog_name="stratagem replay")
