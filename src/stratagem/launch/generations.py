"""Run a cluster through its generations: start it, and start it anew after a failure, until it ends."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from stratagem.core import environment
from stratagem.core.clock import Clock
from stratagem.core.progress import StepFile
from stratagem.launch.compiled import CompiledPrograms, cache_variables, kind_of_programs
from stratagem.launch.local import Signals, open_logs, run_tasks
from stratagem.launch.machine import Machine
from stratagem.launch.output import Screen, failure_report, stdout_screen
from stratagem.launch.plan import Request, TaskPlan, make_plan
from stratagem.launch.restart import Generation, History, Next, Restarts, count_workers


class Run:
    """One call of `stratagem run`, from its first generation to its last.

    Args:
        request: What to run, and with how many workers.
        restarts: What to do after a failure.
        machine: What this machine offers.
        log_dir: Where logs go: those of the only generation into it, those of several into folders of their own.
            None means a temporary folder.
        grace_seconds: Time that tasks have to end before they are killed.
        reports: Whether a failure is shown once more at the end, with its last lines.
        variables: The environment that tasks inherit.
        programs: Compiled programs that tasks find, and add to.
        clock: Where time comes from.

    Attributes:
        folder: Where the logs are.
        interrupt: The signal that ended the run, if one did.
    """

    def __init__(
        self,
        request: Request,
        restarts: Restarts,
        machine: Machine,
        log_dir: Path | None,
        *,
        grace_seconds: float,
        reports: bool = True,
        variables: Mapping[str, str] = os.environ,
        programs: CompiledPrograms | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._tasks = make_plan(request, machine, variables)
        self._request = request
        self._restarts = restarts
        self._machine = machine
        self._grace_seconds = grace_seconds
        self._reports = reports
        self._variables = variables
        self._programs = programs
        self._clock = clock or Clock()
        self._history = History(restarts, request.workers)
        self.folder = log_dir or Path(tempfile.mkdtemp(prefix="stratagem-"))
        self.interrupt: int | None = None

    @property
    def went_well(self) -> bool:
        """Whether nothing failed and nobody interrupted."""
        return self.interrupt is None and all(each.failure is None for each in self._history.generations)

    def run(self) -> int:
        """Run to the end; return the exit code."""
        tasks = self._tasks
        screen = stdout_screen([task.name for task in tasks], no_color=bool(self._variables.get(environment.NO_COLOR)))
        with Signals() as signals:
            while True:
                code, following = self._live(tasks, screen, signals)
                if following is None:
                    break
                self.interrupt = signals.wait(following.pause_seconds, self._clock)
                if self.interrupt is not None:
                    code = 128 + self.interrupt
                    break
                tasks = make_plan(replace(self._request, workers=following.workers), self._machine, self._variables)
        if len(self._history.generations) > 1:
            print(self._history.summary, file=sys.stderr)
        return code

    def _live(self, tasks: Sequence[TaskPlan], screen: Screen, signals: Signals) -> tuple[int, Next | None]:
        """Run one generation; return its exit code, and what follows."""
        number = len(self._history.generations) + 1
        folder = self.folder / f"generation-{number}" if self._restarts.at_most else self.folder
        logs = open_logs(tasks, folder)
        step_files = {task.name: folder / f"{task.type}-{task.index}.steps" for task in tasks}
        start = self._clock.now()
        try:
            with self._lent_programs(tasks) as programs:
                outcome = run_tasks(
                    [_with(task, programs[task.name] | _own(number, step_files[task.name])) for task in tasks],
                    logs,
                    screen,
                    grace_seconds=self._grace_seconds,
                    signals=signals,
                    variables=self._variables,
                    replacements=self._history.restarts_left,
                    clock=self._clock,
                )
        finally:
            for log in logs.values():
                log.close()
        steps = {name: StepFile.read(file)[0] for name, file in step_files.items()}
        for file in step_files.values():
            file.unlink(missing_ok=True)
        workers = [task.name for task in tasks if task.type == "worker"]  # an evaluator may step in vain
        most = max(steps[name] for name in workers)
        generation = Generation(
            number, len(workers), self._clock.now() - start, most, num_replaced=outcome.num_replaced
        )
        failure = outcome.failure
        if failure is not None:
            if self._reports:
                print(failure_report(failure, logs[failure.task]), file=sys.stderr)
            log = logs[failure.task].path
            generation = replace(generation, failure=failure, failed_after_step=steps[failure.task], log=log)
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
        if self._programs is None:
            yield {name: {} for name in names}
            return
        workers = sum(task.type == "worker" for task in tasks)
        with self._programs.lent(kind_of_programs(self._machine, workers), names) as folders:
            yield {name: cache_variables(folders[name], self._variables) if name in folders else {} for name in names}

    def _announce(self, ended: Generation, following: Next) -> None:
        pause = f" in {following.pause_seconds:g} s" if following.pause_seconds else ""
        workers = f" with {count_workers(following.workers)}" if following.workers != ended.workers else ""
        print(f"\nstratagem: {ended}. Generation {ended.number + 1} begins{pause}{workers}.", file=sys.stderr)


def _own(generation: int, step_file: Path) -> dict[str, str]:
    """Return the variables that a task has from this generation."""
    return {environment.GENERATION: str(generation), environment.STEP_FILE: str(step_file.absolute())}


def _with(task: TaskPlan, variables: Mapping[str, str]) -> TaskPlan:
    return replace(task, environment={**task.environment, **variables})
