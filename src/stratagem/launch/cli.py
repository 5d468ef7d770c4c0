"""The command line: `stratagem run --workers 2 train.py`."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from stratagem.core import environment, exits
from stratagem.core.backend import NEEDED, named_backend
from stratagem.core.errors import ClusterError, StratagemError
from stratagem.insight.observer import Observer
from stratagem.launch.compiled import kept_programs
from stratagem.launch.elastic import ElasticRun
from stratagem.launch.elastic_options import check_used, numbers_of
from stratagem.launch.generations import Run
from stratagem.launch.machine import this_machine
from stratagem.launch.output import tell
from stratagem.launch.plan import Request, TaskPlan, has_secret, make_plan
from stratagem.launch.restart import Restarts
from stratagem.launch.watched import Watching, watched, watching_options

_REQUEST = tuple(field.name for field in fields(Request))
"""Options of `stratagem run` that go to `Request`. Of the rest, those that `_run` does not take go to `Restarts`."""

_ELSEWHERE = ("-n", "-np", "--np", "--nproc_per_node", "--nproc-per-node", "--num-processes", "--num_processes")
"""Spellings of --workers that mpirun, horovodrun, torchrun and accelerate have."""

_COUNTS = ("--workers", "--nodes", "--node-rank", "--coordinator", "--ps", "--evaluator", "--devices-per-worker")
"""Options of `stratagem run` that say how many tasks there are; after the script they go to the script."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: What follows `stratagem`; None takes it from the process.

    Returns:
        The exit code.
    """
    try:
        return _stratagem.main(arguments, prog_name="stratagem", standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        if isinstance(error, click.NoSuchOption) and error.option_name in _ELSEWHERE:
            print("Did you mean --workers?", file=sys.stderr)
        return error.exit_code
    except click.Abort:  # Ctrl-C before anything was started
        return 128 + signal.SIGINT
    except StratagemError as error:
        print(f"stratagem: {error}", file=sys.stderr)
        return exits.USAGE if isinstance(error, ClusterError) else 1


@click.group(name="stratagem", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="stratagem")
def _stratagem() -> None:
    """Train Keras models on many devices and many machines."""


@_stratagem.command(name="run", context_settings={"allow_interspersed_args": False})
@click.option("--workers", type=int, default=1, show_default=True, help="Workers on each node.")
@click.option(
    "--devices-per-worker",
    type=int,
    metavar="K",
    help="GPUs of each worker, or virtual CPU devices without a GPU. [default: all GPUs shared equally; 1 CPU]",
)
@click.option("--nodes", type=int, default=1, show_default=True, help="Number of machines that run this command.")
@click.option("--node-rank", type=int, default=0, show_default=True, help="Number of this machine, from 0.")
@click.option(
    "--coordinator",
    metavar="HOST:PORT",
    help="Address of worker 0, which runs on node 0. The same on every node. Worker i listens on PORT + i.",
)
@click.option(
    "--node-hosts",
    metavar="HOST,HOST",
    default="",
    callback=lambda context, option, hosts: tuple(host.strip() for host in hosts.split(",")) if hosts else (),
    help="Host of each node, for the addresses in TF_CONFIG. Training needs only --coordinator.",
)
@click.option(
    "--evaluator",
    is_flag=True,
    help="Also run SCRIPT as an evaluator. It does not train; it evaluates checkpoints (SidecarEvaluator).",
)
@click.option(
    "--ps",
    type=int,
    default=0,
    metavar="N",
    help="Also run N parameter servers and a chief, for ParameterServerStrategy.",
)
@click.option(
    "--log-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the output of each task. [default: a temporary folder, removed unless a task fails]",
)
@click.option(
    "--grace",
    "grace_seconds",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for tasks to end before they are killed.",
)
@click.option(
    "--max-restarts",
    "at_most",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Restart all tasks after a failure, up to N times. With --ps, restart only the lost task.",
)
@click.option(
    "--restart-on",
    "on",
    type=click.Choice(["any", "retryable"]),
    default="any",
    show_default=True,
    help="Failures that cause a restart: retryable excludes exceptions of the program.",
)
@click.option(
    "--backoff",
    "backoff_seconds",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Pause before a restart if tasks failed before their first step. It doubles each time.",
)
@click.option(
    "--min-workers",
    type=int,
    metavar="M",
    help="If tasks fail again and again before their first step, restart with one worker less, down to M.",
)
@click.option(
    "--spares",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Also start N spare processes on each node. When a worker dies, a spare takes its place, and training "
    "continues from memory. Only for workers on CPUs.",
)
@click.option(
    "--elastic",
    metavar="MIN:MAX",
    help="Start MAX workers, equally many on each node. When one dies, the others continue from memory while at least "
    "MIN are left. A new worker is started and joins them. For workers on CPUs, and for those of --ps.",
)
@click.option(
    "--hang-timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="End the tasks after this time without progress; 0 turns this off. "
    "[default: 600, or 20 times the longest step]",
)
@click.option(
    "--no-compilation-cache",
    is_flag=True,
    help="Compile everything again. [default: keep compiled programs for later runs, in ~/.cache/stratagem]",
)
@watching_options
@click.option("--dry-run", is_flag=True, help="Print the environment and command of each task, and start nothing.")
@click.option("--module", "-m", "is_module", is_flag=True, help="SCRIPT is a module name, as in python -m.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def _run(
    script: str,
    arguments: tuple[str, ...],
    is_module: bool,
    log_dir: Path | None,
    grace_seconds: float,
    hang_timeout: float | None,
    no_compilation_cache: bool,
    dry_run: bool,
    spares: int,
    elastic: str | None,
    **asked: Any,
) -> int:
    """Run SCRIPT on every worker of a cluster.

    Each worker gets its TF_CONFIG, its share of the cores and GPUs, and a log. The first failure ends all
    workers and is shown at the end. Write options of stratagem before SCRIPT.

    \b
    On one machine:
        stratagem run --workers 2 train.py --epochs 3
    On two machines with two workers each (on the second one, --node-rank 1):
        stratagem run --workers 2 --nodes 2 --node-rank 0 --coordinator 10.0.0.5:12345 train.py
    """  # noqa: D301 - click keeps the lines below a backspace as they are
    if not is_module and not Path(script).is_file():
        raise ClusterError(
            f"There is no file {script!r} in {Path.cwd()}.",
            "Name a Python file, or add -m to name a module. Options of stratagem run stand before it.",
        )
    watching = Watching(**{field.name: asked.pop(field.name) for field in fields(Watching)})
    least, asked["workers"] = numbers_of(elastic, asked["workers"], asked["nodes"])
    is_elastic, has_servers = spares > 0 or elastic is not None, asked["ps"] > 0
    if is_elastic:
        check_used(has_servers=has_servers)
    command = ("-m", script, *arguments) if is_module else (script, *arguments)
    request = Request(command, **{name: asked.pop(name) for name in list(asked) if name in _REQUEST})
    restarts = Restarts(**asked, replaces_workers=is_elastic and has_servers)
    variables = os.environ | ({environment.HANG_TIMEOUT: str(hang_timeout)} if hang_timeout is not None else {})
    variables |= {environment.COMPILATION_CACHE: "false"} if no_compilation_cache else {}
    variables |= {environment.MIN_WORKERS: str(least)} if is_elastic and has_servers else {}
    variables |= watching.variables
    restarts.check(request.workers, request.nodes)
    _note_misplaced(request)
    _note_surroundings(variables)
    if request.nodes > 1 and not has_secret(variables):
        print(
            f"stratagem: {request.nodes} nodes have no secret: anyone who can reach {request.coordinator} can take "
            f"part. Set {environment.SECRET_FILE} to a file that is the same on all of them: openssl rand -hex 32",
            file=sys.stderr,
        )
    if named_backend() != NEEDED:
        print(
            f"stratagem: {environment.KERAS_BACKEND}={named_backend()} in this shell; the tasks run with "
            f"{environment.KERAS_BACKEND}={NEEDED}",
            file=sys.stderr,
        )
    if dry_run:
        print("\n\n".join(map(_description, make_plan(request, this_machine(), variables))))
        return 0
    with watched(shlex.join(command), watching, variables) as observer:
        if is_elastic and not has_servers:
            observer.tell = lambda line: tell(f"stratagem: {line}")
            elastically = functools.partial(
                ElasticRun,
                request,
                least,
                spares,
                this_machine(),
                is_given=elastic is not None,
                grace_seconds=grace_seconds,
                variables=variables,
                programs=kept_programs(variables),
            )
            return _run_elastic(elastically, restarts.at_most, log_dir, observer)
        return _run_generations(request, restarts, log_dir, grace_seconds, variables, observer)


def _run_generations(
    request: Request,
    restarts: Restarts,
    log_dir: Path | None,
    grace_seconds: float,
    variables: Mapping[str, str],
    observer: Observer,
) -> int:
    """Run all tasks to the end; after a failure all again, as `restarts` says."""
    run = Run(
        request,
        restarts,
        this_machine(),
        log_dir,
        grace_seconds=grace_seconds,
        variables=variables,
        programs=kept_programs(variables),
        observer=observer,
    )
    code = run.run()
    if run.interrupt is not None:
        tell(f"\nstratagem: interrupted; every task has ended. Their output: {run.folder}")
    elif run.went_well and log_dir is None:
        shutil.rmtree(run.folder, ignore_errors=True)  # somebody may have emptied the temporary files
    return code


def _run_elastic(make: Callable[..., ElasticRun], restarts: int, log_dir: Path | None, observer: Observer) -> int:
    """Run workers that may change; where nobody is left to take the state from, start all again, so many times."""
    folder = log_dir or Path(tempfile.mkdtemp(prefix="stratagem-"))
    while True:
        run = make(folder, observer=observer)
        code = run.run()
        if restarts == 0 or run.interrupt is not None or not exits.is_retryable(code):
            break
        restarts -= 1
        tell("stratagem: The run begins again.")
    if run.interrupt is not None:
        tell(f"\nstratagem: interrupted; every process has ended. Their output: {folder}")
    elif code == 0 and log_dir is None:
        shutil.rmtree(folder, ignore_errors=True)
    return code


@_stratagem.command(name="doctor")
@click.option("--workers", type=int, default=1, show_default=True, help="Workers on this machine.")
@click.option("--backup-dir", metavar="DIR", help="Folder for backups: check that it can be written.")
@click.option(
    "--dataset",
    metavar="MODULE:FUNCTION",
    help="Function in a module or path/to/file.py that returns the global dataset. Check that every example is read "
    "once, that the order does not depend on the number of workers, and that a second pass is the same.",
)
@click.option(
    "--layout",
    metavar="MODULE:FUNCTION",
    help="Function that returns a built model, or a model and a layout map. Only print how each variable is divided "
    "among the devices of a replica.",
)
@click.option("--model-parallel", type=int, metavar="K", help="Number of devices of a replica, for --layout.")
@click.option(
    "--timeout", default=60.0, show_default=True, metavar="SECONDS", help="Time that tasks wait for one another."
)
def _doctor(workers: int, **options: object) -> int:
    """Check a cluster before a long run.

    Print each problem with its repair.

    \b
    Workers on this machine:
        stratagem doctor --workers 2 --backup-dir backup
    In a cluster of TF_CONFIG or a scheduler, run this in every task:
        stratagem doctor
    On several machines, run this on each:
        stratagem run --workers 2 --nodes 2 --node-rank 0 --coordinator 10.0.0.5:12345 -m stratagem.doctor
    """  # noqa: D301 - click keeps the lines below a backspace as they are
    return _run_tasks(["-m", "stratagem.doctor", *_written(options)], workers)


def _run_tasks(command: Sequence[str], workers: int) -> int:
    """Run Python in each of some workers, or here for the task that TF_CONFIG describes; return the exit code."""
    if workers == 1 or environment.TF_CONFIG in os.environ:
        return _run_module(command)
    request = Request(tuple(command), workers=workers)
    run = Run(request, Restarts(), this_machine(), None, grace_seconds=10.0, variables=os.environ, reports=False)
    code = run.run()
    shutil.rmtree(run.folder)  # all that was said has been shown
    return code


@_stratagem.command(name="replay", context_settings={"allow_interspersed_args": False})
@click.option("--backup", required=True, metavar="DIR", help="Folder of the program's BackupAndRestore; only read.")
@click.option(
    "--step", required=True, type=click.IntRange(min=1), metavar="N", help="Number of the step; fit begins with step 1."
)
@click.option("--until-differs", is_flag=True, help="Run the step until two runs differ, or until Ctrl-C.")
@click.option("--times", type=click.IntRange(min=2), metavar="K", help="Run the step K times at most. [default: 2]")
@click.option("--locate", is_flag=True, help="Report which layer computes NaN or infinity, and from which rows.")
@click.option("--workers", type=int, default=1, show_default=True, help="Workers on this machine.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def _replay(
    workers: int, script: str, arguments: tuple[str, ...], until_differs: bool, locate: bool, **options: object
) -> int:
    """Run a step of SCRIPT again, and compare the results.

    The program trains from the last backup before the step, without callbacks that may write files. The exit code
    is 0 if the bits are the same, 1 if they differ, and 2 if the step cannot be run.

    \b
    Run a step twice:
        stratagem replay --backup backup --step 173 train.py --epochs 3
    Run it on two workers until two results differ:
        stratagem replay --backup backup --step 173 --until-differs --workers 2 train.py
    """  # noqa: D301 - click keeps the lines below a backspace as they are
    flags = [name for name, given in (("--until-differs", until_differs), ("--locate", locate)) if given]
    command = ["-m", "stratagem.replay", *_written(options), *flags, script, *arguments]
    return _run_tasks(command, workers)


class _Module(click.Command):
    """A command that is a module of its own, which reads all that follows its name.

    Args:
        name: The name of the command.
        help: What it does.
        module: The module, below `stratagem`; None where it has the name of the command.
    """

    def __init__(self, name: str, help: str, module: str | None = None) -> None:
        super().__init__(name, help=help)
        self._module = module or name

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.args = args
        return []

    def invoke(self, ctx: click.Context) -> int:
        return _run_module(["-m", f"stratagem.{self._module}", *ctx.args])


_stratagem.add_command(_Module("demo", help="Train a small network on two workers of this machine."))
_stratagem.add_command(_Module("help", help="Show a guide; without a topic, list the guides."))
_stratagem.add_command(_Module("manifest", help="Print the file that starts a program on a cluster."))
_stratagem.add_command(_Module("migrate", help="Rewrite TensorFlow programs for stratagem.tf."))
_stratagem.add_command(_Module("plan", help="Predict the time and memory of a step on other hardware."))
_stratagem.add_command(_Module("top", help="Show where the tasks of a run spend their time.", module="insight"))


def _note_misplaced(request: Request) -> None:
    """Say that options of the launcher went to the script, where that leaves one task."""
    misplaced = [word for word in request.command if word.partition("=")[0] in (*_COUNTS, *_ELSEWHERE)]
    if misplaced and request.workers == request.nodes == 1 and not request.ps:
        print(
            f"stratagem: {misplaced[0]} stands after the script and goes to it; one worker is started. "
            "If it is meant for stratagem run, write it before the script.",
            file=sys.stderr,
        )


def _note_surroundings(variables: Mapping[str, str]) -> None:
    """Say what the environment has that the tasks will not heed: a cluster of its own, a misspelt name."""
    if variables.get(environment.TF_CONFIG, "").strip():
        print(
            f"stratagem: {environment.TF_CONFIG} is set in this shell; the tasks get one of their own, so they form a "
            "separate cluster. To be one task of that cluster, start the program with python, without stratagem run.",
            file=sys.stderr,
        )
    for line in environment.misspelt(variables):
        print(f"stratagem: {line}", file=sys.stderr)


def _written(options: Mapping[str, object]) -> list[str]:
    """Return options as one would write them; those that were not given are left out.

    Example:
        >>> _written({"backup_dir": "backup", "dataset": None, "timeout": 60.0})
        ['--backup-dir', 'backup', '--timeout', '60.0']
    """
    given = {name: str(value) for name, value in options.items() if value is not None}
    return [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]


def _run_module(command: Sequence[str]) -> int:
    """Run Python in a process whose Keras has JAX, whatever this shell says; return its exit code."""
    variables = {**os.environ, environment.KERAS_BACKEND: NEEDED}
    return subprocess.run([sys.executable, *command], env=variables, check=False).returncode


def _description(task: TaskPlan) -> str:
    """Return a task as lines that a shell can run."""
    cores = f", cores {','.join(map(str, task.cores))}" if task.cores else ""
    hidden = (environment.KEYS, environment.SECRET)
    shown = {name: "(secret)" if name in hidden else value for name, value in task.environment.items()}
    settings = [f"{name}={shlex.quote(value)} \\" for name, value in shown.items()]
    return "\n".join([f"# {task.name}{cores}", *settings, shlex.join(task.command)])
