"""The command line of `stratagem top`."""

from __future__ import annotations

import os
import sys

import click
from rich.console import Console

from stratagem.cluster.secret import read_secret
from stratagem.core import exits
from stratagem.core.clock import Clock
from stratagem.core.errors import ClusterError
from stratagem.insight.metrics import token_of
from stratagem.insight.top import look_at_address, look_at_run, show


@click.command(name="stratagem top", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", required=False, metavar="[PID | HOST:PORT]")
@click.option("--once", is_flag=True, help="Print the current view once, and exit.")
@click.option("--token", is_flag=True, help="Print the token for --metrics-port, made from the cluster's secret.")
def _top(run: str | None, once: bool, token: bool) -> int:
    """Show where the tasks of a run spend their time.

    Without an argument, show your newest run on this machine. PID is the process of another launcher.

    \b
    Your newest run on this machine:
        stratagem top
    A run on another machine that was started with --metrics-port 9100:
        stratagem top 10.0.0.5:9100
    """  # noqa: D301 - click keeps the lines below a backspace as they are
    secret = read_secret(os.environ)
    if token:
        if not secret:
            raise ClusterError(
                "This environment has no secret, so there is no token.",
                "Set STRATAGEM_SECRET_FILE to the secret file of the cluster.",
            )
        print(token_of(secret))
        return 0
    if run is not None and ":" in run:
        look = look_at_address(run, secret)
    elif run is None or run.isdigit():
        look = look_at_run(None if run is None else int(run))
    else:
        raise ClusterError(
            f"stratagem top was given {run!r}.",
            "Name a run on this machine by the process of its launcher, or a run on another machine by HOST:PORT.",
        )
    console = Console()
    if once:
        console = Console(force_terminal=False, width=max(console.width, 120))
    show(look, console, Clock())
    return 0


def main() -> int:
    """Run the command line; return the exit code."""
    try:
        return _top.main(prog_name="stratagem top", standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except ClusterError as error:
        print(f"stratagem: {error}", file=sys.stderr)
        return exits.USAGE


if __name__ == "__main__":
    sys.exit(main())
