"""`Run`: a cluster from its first generation to its last; after a failure it is started anew."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path

from stratagem.core import environment
from stratagem.core.clock import Clock
from stratagem.core.counters import CountersFile, file_of_other_hosts
from stratagem.core.errors import explain
from stratagem.insight.observer import Observer
from stratagem.launch.compiled import CompiledPrograms, cache_variables, kind_of_programs
from stratagem.launch.local import Signals, open_logs, run_tasks
from stratagem.launch.machine import Machine
from stratagem.launch.output import Screen, failure_report, stdout_screen, tell
from stratagem.launch.plan import Request, TaskPlan, make_plan
from stratagem.launch.restart import Generation, History, Next, Restarts, count_workers


@dataclass
class Run:
    """One call of `stratagem run`, from its first generation to its last.

    Args:
        request: What to run, and with how many workers.
        restarts: What to do after a failure.
        machine: What this machine offers.
        log_dir: Where logs go: those of the only generation into it, those of several into folders of their own.
            None means a temporary folder.
        grace_seconds: Time that tasks have to end before they are killed.
        variables: The environment that tasks inherit.
        reports: Whether a failure is shown once more at the end, with its last lines.
        programs: Compiled programs that tasks find, and add to.
        observer: Told which tasks there are, and what becomes of them.
        clock: Where time comes from.

    Attributes:
        folder: Where the logs are.
        interrupt: The signal that ended the run, if one did.
    """

    request: Request
    restarts: Restarts
    machine: Machine
    log_dir: Path | None
    _: KW_ONLY
    grace_seconds: float
    variables: Mapping[str, str]
    reports: bool = True
    programs: CompiledPrograms | None = None
    observer: Observer = field(default_factory=lambda: Observer("a run"))
    clock: Clock = field(default_factory=Clock)
    folder: Path = field(init=False)
    interrupt: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._tasks = make_plan(self.request, self.machine, self.variables)
        self._history = History(self.restarts, self.request.workers)
        self.folder = self.log_dir or Path(tempfile.mkdtemp(prefix="stratagem-"))

    @property
    def went_well(self) -> bool:
        """Whether nothing failed and nobody interrupted."""
        return self.interrupt is None and all(each.failure is None for each in self._history.generations)

    @property
    def _should_have_met(self) -> bool:
        """Whether the tasks are workers that train together. Those that serve a chief, or only report, are not."""
        return self.reports and self.request.workers * self.request.nodes > 1 and not self.request.ps

    def run(self) -> int:
        """Run to the end; return the exit code."""
        tasks = self._tasks
        screen = stdout_screen([task.name for task in tasks], no_color=bool(self.variables.get(environment.NO_COLOR)))
        with Signals() as signals:
            while True:
                code, following = self._live(tasks, screen, signals)
                if following is None:
                    break
                self.interrupt = signals.wait(following.pause_seconds, self.clock)
                if self.interrupt is not None:
                    code = 128 + self.interrupt
                    break
                tasks = make_plan(replace(self.request, workers=following.workers), self.machine, self.variables)
        if len(self._history.generations) > 1:
            tell(self._history.summary)
        return code

    def _live(self, tasks: Sequence[TaskPlan], screen: Screen, signals: Signals) -> tuple[int, Next | None]:
        """Run one generation; return its exit code, and what follows."""
        number = len(self._history.generations) + 1
        folder = self.folder / f"generation-{number}" if self.restarts.at_most else self.folder
        logs = open_logs(tasks, folder)
        counter_files = {task.name: folder / f"{task.type}-{task.index}.counters" for task in tasks}
        start = self.clock.now()
        self.observer.follow(counter_files)
        try:
            with self._lent_programs(tasks) as programs:
                outcome = run_tasks(
                    [_of_generation(number, task, counter_files[task.name], programs[task.name]) for task in tasks],
                    logs,
                    screen,
                    grace_seconds=self.grace_seconds,
                    signals=signals,
                    variables=self.variables,
                    replacements=self._history.restarts_left,
                    replaces_workers=self.restarts.replaces_workers,
                    clock=self.clock,
                )
        finally:
            for log in logs.values():
                log.close()
        self.observer.look()
        notes = {name: CountersFile.read(file) for name, file in counter_files.items()}
        # Whoever emptied the folder of logs removed what tasks had noted too: then nothing is said.
        met = any(each.joined for each in notes.values()) or not all(log.path.exists() for log in logs.values())
        for file in counter_files.values():
            file.unlink(missing_ok=True)
            file_of_other_hosts(file).unlink(missing_ok=True)
        workers = [task.name for task in tasks if task.type == "worker"]  # an evaluator may step in vain
        most = max(notes[name].steps for name in workers)
        seconds = self.clock.now() - start
        generation = Generation(number, len(workers), seconds, most, num_replaced=outcome.num_replaced)
        failure = outcome.failure
        if failure is not None:
            self.observer.note(f"{failure.task} {failure.reason}.")
            if self.reports:
                tell(failure_report(failure, logs[failure.task]))
            log = logs[failure.task].path
            generation = replace(generation, failure=failure, failed_after_step=notes[failure.task].steps, log=log)
        elif outcome.exit_code == 0 and self._should_have_met and not met:
            tell(_never_met(len(workers)))
        following = self._history.next_after(generation)
        self.interrupt = outcome.interrupt
        if self.interrupt is not None:
            following = None
        elif following is not None:
            self._announce(generation, following)
        return outcome.exit_code, following

    @contextmanager
    def _lent_programs(self, tasks: Sequence[TaskPlan]) -> Iterator[dict[str, dict[str, str]]]:
        """Give the variables with which each task finds compiled programs."""
        names = [task.name for task in tasks]
        if self.programs is None:
            yield {name: {} for name in names}
            return
        workers = sum(task.type == "worker" for task in tasks)
        with self.programs.lent(kind_of_programs(self.machine, workers), names) as folders:
            yield {name: cache_variables(folders[name], self.variables) if name in folders else {} for name in names}

    def _announce(self, ended: Generation, following: Next) -> None:
        pause = f" in {following.pause_seconds:g} s" if following.pause_seconds else ""
        workers = f" with {count_workers(following.workers)}" if following.workers != ended.workers else ""
        text = f"{ended}. Generation {ended.number + 1} begins{pause}{workers}."
        tell(f"\nstratagem: {text}")
        self.observer.note(text)


def _never_met(workers: int) -> str:
    """Return what is printed after workers of which none joined the cluster."""
    return explain(
        f"stratagem: {count_workers(workers)} ended, and none of them made a MultiWorkerMirroredStrategy.",
        "Each ran the whole program alone. If it trains, they trained separate models and wrote the same files.",
        "Write strategy = stratagem.MultiWorkerMirroredStrategy() in the program, or leave --workers out.",
    )


def _of_generation(number: int, task: TaskPlan, counter_file: Path, programs: Mapping[str, str]) -> TaskPlan:
    """Return a task with the variables that it has in this generation."""
    own = {environment.GENERATION: str(number), environment.COUNTERS_FILE: str(counter_file.absolute())}
    return replace(task, environment={**task.environment, **programs, **own})
