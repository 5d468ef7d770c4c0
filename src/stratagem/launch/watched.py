"""Table, report, metrics and profiles of a run: what `stratagem run` shows beside the output of its tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from stratagem.cluster.secret import read_secret
from stratagem.core import environment
from stratagem.core.errors import ClusterError
from stratagem.insight.metrics import MetricsServer
from stratagem.insight.observer import Observer
from stratagem.insight.profiles import ProfiledSteps, forget_earlier, join_traces
from stratagem.insight.report import write_report
from stratagem.insight.runs import Listing
from stratagem.insight.samples import Sample
from stratagem.insight.summary import summary
from stratagem.launch.output import tell

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Watching:
    """What is asked for.

    Args:
        report: Where a page with plots goes.
        metrics_port: Where the numbers of the run are served; 0 takes a free port.
        log_json: Where the numbers go, a line of JSON for each look.
        profile: Steps of each worker that are recorded with JAX's profiler, FIRST:LAST.
        profile_dir: Where the profiles go.
    """

    report: Path | None = None
    metrics_port: int | None = None
    log_json: Path | None = None
    profile: str | None = None
    profile_dir: Path = Path("profile")

    @property
    def profiled(self) -> ProfiledSteps | None:
        """The steps that are recorded.

        Raises:
            ClusterError: They cannot be understood.
        """
        return None if self.profile is None else ProfiledSteps.of(self.profile, self.profile_dir)

    @property
    def variables(self) -> dict[str, str]:
        """What tasks are told of it."""
        return {} if self.profiled is None else {environment.PROFILE: self.profiled.written()}


def watching_options(command: _F) -> _F:
    """Add the options of `Watching` to a command."""
    for option in (
        click.option(
            "--profile-dir",
            type=click.Path(file_okay=False, path_type=Path),
            default=Path("profile"),
            show_default=True,
            help="Folder for the profiles.",
        ),
        click.option(
            "--profile",
            metavar="FIRST:LAST",
            help="Record these steps of each worker with JAX's profiler. TensorBoard opens the folder; Perfetto opens "
            "the trace of all workers in it.",
        ),
        click.option(
            "--log-json",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Write the counters of the tasks to this file, one line of JSON each second.",
        ),
        click.option(
            "--metrics-port",
            type=click.IntRange(0, 65535),
            metavar="PORT",
            help="Serve the counters of the tasks to Prometheus (/metrics) and stratagem top. Without a secret of the "
            "cluster, only to this machine.",
        ),
        click.option(
            "--report",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE.html",
            help="Write a page with plots of the run: steps, time, loss, memory, restarts.",
        ),
    ):
        command = option(command)
    return command


@contextmanager
def watched(command: str, asked: Watching, variables: Mapping[str, str]) -> Iterator[Observer]:
    """Observe a run while it lasts; print the table and write the page at its end.

    Args:
        command: What it runs, for people.
        asked: What is asked for.
        variables: The environment, which may hold the secret of the cluster.

    Raises:
        ClusterError: A file cannot be written, or the port is taken.
    """
    observer = Observer(command)
    with ExitStack() as stack:
        if asked.profiled is not None:
            forget_earlier(asked.profiled)
        if asked.report is not None:
            _check_place(asked.report, "--report")
            observer.listeners.append(_writes_now_and_then(observer, asked.report))
        if asked.log_json is not None:
            observer.listeners.append(_lines_to(asked.log_json, stack))
        if asked.metrics_port is not None:
            server = stack.enter_context(MetricsServer(observer, asked.metrics_port, read_secret(variables)))
            tell(f"stratagem: metrics at http://{server.address}/metrics")
        listing = stack.enter_context(Listing(command, observer.began))
        observer.listeners.append(lambda samples: listing.write(observer.files, observer.events))
        stack.enter_context(observer)
        yield observer
    table = summary(observer.present())
    if table is not None:
        tell(f"\n{table}")
    if asked.profiled is not None and (trace := join_traces(asked.profiled)) is not None:
        tell(f"stratagem: profile: {asked.profile_dir} (tensorboard --logdir), {trace} (https://ui.perfetto.dev)")
    if asked.report is not None:
        write_report(observer, asked.report)
        tell(f"stratagem: report: {asked.report}")


def _check_place(path: Path, option: str) -> None:
    if not path.parent.is_dir():
        raise ClusterError(
            f"{option} is {str(path)!r}, and there is no folder {str(path.parent)!r}.",
            "Make the folder, or name another file.",
        )


def _writes_now_and_then(observer: Observer, path: Path, every: int = 60) -> Callable[[Mapping[str, Sample]], None]:
    """Return a listener that writes the page once a minute, so that one is there where the launcher is killed."""
    looks = 0

    def write(samples: Mapping[str, Sample]) -> None:
        nonlocal looks
        looks += 1
        if looks % every == 0:
            write_report(observer, path)

    return write


def _lines_to(path: Path, stack: ExitStack) -> Callable[[Mapping[str, Sample]], None]:
    """Return a listener that writes a line of JSON for each look."""
    try:
        file = stack.enter_context(path.open("w", encoding="utf-8"))
    except OSError as error:
        raise ClusterError(f"--log-json {path} cannot be written: {error}.", "Name another file.") from error

    def write(samples: Mapping[str, Sample]) -> None:
        for name, sample in samples.items():
            file.write(json.dumps({"task": name, **sample.as_dict()}) + "\n")
        file.flush()

    return write
