"""Options of `stratagem run` with --spares or --elastic: the numbers of workers, and what cannot stand beside them."""

from __future__ import annotations

import re

import click
from click.core import ParameterSource

from stratagem.core.errors import ClusterError, name_some


def numbers_of(elastic: str | None, workers: int, nodes: int) -> tuple[int, int]:
    """Return the least number of workers of all nodes, and that of each node at the start.

    Args:
        elastic: What --elastic says.
        workers: What --workers says, or its default.
        nodes: What --nodes says, or its default.

    Raises:
        ClusterError: They cannot be understood, or contradict each other.
    """
    if elastic is None:
        return workers * nodes, workers
    found = re.fullmatch(r"(\d+):(\d+)", elastic)
    least, most = map(int, found.groups()) if found else (0, 0)
    if not 1 <= least <= most:
        raise ClusterError(
            f"--elastic is {elastic!r}.",
            "It takes two whole numbers, 1 or more: the smallest number of workers that continue training, and the "
            "number at the start.",
            "Write for instance --elastic 2:4.",
        )
    if _is_given("workers") and workers * nodes != most:
        raise ClusterError(
            f"--workers is {workers}, --elastic is {elastic!r}{f', --nodes is {nodes}' if nodes > 1 else ''}.",
            f"With --elastic the run starts with the largest number, {most}.",
            "Leave --workers out.",
        )
    if nodes > 0 and most % nodes:
        raise ClusterError(
            f"--elastic is {elastic!r}, --nodes is {nodes}.",
            f"The run starts with the largest number, {most}, and every node starts as many workers as the others.",
            f"Write a multiple of {nodes} behind the colon.",
        )
    return least, most // max(nodes, 1)


def _is_given(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


def check_used(*, has_servers: bool) -> None:
    """Refuse options that a run with --spares or --elastic does not use.

    Args:
        has_servers: Whether there are parameter servers, whose workers do not wait for each other.

    Raises:
        ClusterError: There is one.
    """
    if has_servers:
        if _is_given("spares"):
            raise ClusterError(
                "--spares was given with --ps.",
                "Workers of parameter servers do not wait for each other, so nobody has to take the place of a lost "
                "one at once.",
                "Write --elastic MIN:MAX instead: it starts MAX workers, and each lost one again.",
            )
        return
    unused = {"hang_timeout": "--hang-timeout", "on": "--restart-on", "backoff_seconds": "--backoff"}
    unused["min_workers"] = "--min-workers"
    given = [name for option, name in unused.items() if _is_given(option)]
    if given:
        raise ClusterError(
            f"{name_some(given)} was given with --spares or --elastic.",
            "This option controls how all tasks are started again, but here the workers that are still alive "
            "continue training.",
            f"Leave it out{'; --elastic MIN:MAX says how few may train' if '--min-workers' in given else ''}.",
        )
