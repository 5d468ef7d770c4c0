"""Recording of some steps of this process with JAX's profiler: `stratagem run --profile 20:30`."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import jax

from stratagem.core import environment
from stratagem.core.log import announce, logger
from stratagem.core.progress import Progress, progress
from stratagem.insight.profiles import ProfiledSteps


class _Recording:
    """Begins before the first of the steps, and ends behind the last one."""

    def __init__(self, steps: ProfiledSteps, worker: str) -> None:
        self._steps = steps
        self._worker = worker
        self._folder: Path | None = None
        self._began = 0
        self._is_over = False

    def behind(self, step: int) -> None:
        """Look whether to begin or to end, behind a step."""
        if self._folder is None and not self._is_over and step >= self._steps.first - 1:
            self._begin()
        elif self._folder is not None and step >= self._steps.last:
            self.end()

    def _begin(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="stratagem-profile-"))
        self._began = time.time_ns()
        jax.profiler.start_trace(self._folder)

    def end(self) -> None:
        """End, and move the files to where those of all workers are. A program that ends early calls it too."""
        if self._folder is None:
            return
        jax.effects_barrier()
        jax.profiler.stop_trace()
        folder, self._folder, self._is_over = self._folder, None, True
        try:
            self._steps.run_folder.mkdir(parents=True, exist_ok=True)
            for kind in ("xplane.pb", "trace.json.gz"):
                for path in folder.rglob(f"*.{kind}"):
                    shutil.move(path, self._steps.run_folder / f"{self._worker}.{kind}")
            self._steps.beginning_of(self._worker).write_text(str(self._began), encoding="ascii")
            announce(f"profile of steps {self._steps.first} to {self._steps.last}: {self._steps.folder}")
        except OSError as error:
            logger.warning("The profile could not be written to %s: %s", self._steps.folder, error)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def record_steps(variables: Mapping[str, str] = os.environ, counts: Progress = progress) -> None:
    """Record the steps that the launcher asks for. Only the first call in a process does.

    Args:
        variables: The environment.
        counts: What counts the steps.
    """
    asked = variables.get(environment.PROFILE)
    if not asked or counts.behind_step is not None:
        return
    # A chief, a worker and an evaluator have the same index: the launcher names the file of each after the task.
    task = Path(variables[environment.COUNTERS_FILE]).stem
    recording = _Recording(ProfiledSteps.read(asked), task)
    counts.behind_step = recording.behind
    recording.behind(counts.mark.steps)
    atexit.register(recording.end)
