"""Advice on slow input: how long training waited for it, and what to write to shorten the wait."""

from __future__ import annotations

from typing import Final

from stratagem.core.progress import progress
from stratagem.data.nodes import Node, walk


def waited_for_input() -> float:
    """Return the seconds that `fit` has waited for input in this process so far.

    Read it before and after an epoch, for instance in a callback. A wait counts only if no step was running when it
    ended. If nothing reads ahead, reading itself is the wait.

    Example:
        >>> waited_for_input() >= 0
        True
    """
    return progress.waited_for_input


def faster(node: Node, processes: int, cores: int) -> str:
    """Return what reads slowly in a pipeline, and what to write instead, in one clause.

    Args:
        node: The last step of the pipeline.
        processes: How many reader processes it has.
        cores: How many cores this process may use.
    """
    steps = [step for step in walk(node) if not step.in_memory]
    functions = [str(step.row_function) for step in steps if step.row_function]
    if not steps:
        return "the rows lie in memory already: larger batches cost less for each row"
    if not any(
        step.reads_single_rows for step in steps
    ):  # what only reading in order can tell is read by every worker, in one thread
        return f"{', '.join(type(step).__name__.lower() for step in steps)} reads in the worker's own Python: {_CACHE}"
    if processes:
        ways = _CACHE if processes >= cores else f"write {_more(min(cores, 2 * processes))}"
        return f"{processes} reader processes are too few: {ways}"
    threads = max(step.parallel_calls for step in steps if step.reads_single_rows)
    what = f"{', '.join(functions)} runs" if functions else "reading files runs"
    where = "one thread" if threads == 1 else f"{threads} threads of one Python"
    if cores == 1:
        ways = f"this worker has one core; {_CACHE}"
    elif functions and threads == 1:
        ways = f"write num_parallel_calls=stratagem.data.AUTOTUNE or {_more(2)}"
    else:
        ways = f"write {_more(2)}"
    return f"{what} in {where}: {ways}"


_CACHE: Final = "cache() the rows, if they fit into memory, or store prepared examples in a file"


def _more(processes: int) -> str:
    return f"options.reader_processes = {processes}"
