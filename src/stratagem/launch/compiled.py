"""Compiled programs that last from one run to the next.

JAX keeps them in a folder, and finds them by what they compute (`jax_compilation_cache_dir`). One folder for all tasks
is not enough: JAX writes files in place, so a worker that is killed leaves half a program there for good, and another
worker may read a file that is still being written. Therefore JAX lets one process write, and on CPUs the others find
nothing (`cluster.compat.keep_programs`). JAX's own bound on the size of the folder needs one more package, and fails on
files that a killed process has left.

So each task gets a folder of its own, with links to all known programs. When the tasks have ended, new programs that
are whole are moved out of these folders. The folder of a run is locked as long as its launcher lives; if the launcher
is killed, the next one takes its programs over.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG, S_IWGRP, S_IWOTH
from typing import Final

from stratagem.core import environment
from stratagem.core.files import draft_of
from stratagem.launch.machine import Machine, processor
from stratagem.launch.output import tell

MOST_BYTES: Final = 1 << 30
"""Size of all that is kept. A training step of a tutorial takes some hundred kilobytes."""

MOST_PROGRAMS: Final = 2000
"""How many are kept. Making a link takes some ten microseconds, for each task."""

_PROGRAMS: Final = "*-cache"
"""The files of JAX."""

_RUN: Final = "run-"
_LOCK: Final = "lock"
_DECOMPRESSORS: Final = ("zlib", "compression.zstd", "zstandard")
"""What JAX compresses with: zlib, or zstd where it is installed."""


class CompiledPrograms:
    """Programs that were compiled by earlier runs, in a folder of the user.

    A failure of the folder never ends a run: programs are compiled then, and one line says why.

    Args:
        folder: The folder. It is made for this user alone: writing there is as good as running programs as this user.
        most_bytes: How much is kept. The programs that were not used for longest go first.

    Example:
        >>> programs = CompiledPrograms(getfixture("tmp_path") / "compiled")
        >>> with programs.lent("this processor", ["worker 0", "worker 1"]) as folders:
        ...     list(folders)
        ['worker 0', 'worker 1']
    """

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder = folder
        self._most_bytes = most_bytes

    @contextmanager
    def lent(self, kind: str, tasks: Sequence[str]) -> Iterator[dict[str, Path]]:
        """Give each task a folder with all programs; take over the new ones at the end.

        Args:
            kind: What the programs were compiled for; those of one kind fit each other's processors.
            tasks: Names of the tasks.

        Returns:
            The folder of each task; none where they cannot be made.
        """
        known = self.folder / kind
        try:
            self._require_own_folder()
            known.mkdir(mode=0o700, exist_ok=True)
            self._take_over_abandoned(known)
            run, lock = _locked_folder(known)
            folders = {task: _links(run / str(number), known) for number, task in enumerate(tasks)}
        except OSError as error:
            self._report(error)
            yield {}
            return
        try:
            yield folders
        finally:
            try:
                self._take_over(run, known)
            except OSError as error:
                self._report(error)
            os.close(lock)

    def _require_own_folder(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self.folder.stat()
        if found.st_uid != os.getuid() or found.st_mode & (S_IWGRP | S_IWOTH):
            raise PermissionError("other users could put programs there")

    def _take_over_abandoned(self, known: Path) -> None:
        """Take over what runs have left whose launchers were killed."""
        for run in known.glob(f"{_RUN}*"):
            try:
                lock = os.open(run / _LOCK, os.O_RDWR)
            except FileNotFoundError:  # another launcher is taking it over
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._take_over(run, known)
            except BlockingIOError:  # its launcher lives
                pass
            finally:
                os.close(lock)

    def _take_over(self, run: Path, known: Path) -> None:
        """Keep the new programs of a run, and remove its folder."""
        new = {file.name: file for file in run.glob(f"*/{_PROGRAMS}") if not (known / file.name).exists()}
        for name, file in new.items():
            program = file.read_bytes()
            if _is_whole(program):
                with draft_of(known / name) as draft:
                    draft.write_bytes(program)
        shutil.rmtree(run, ignore_errors=True)
        if new:
            self._forget_the_oldest()

    def _forget_the_oldest(self) -> None:
        files = []
        for file in self.folder.glob("*/*"):
            try:
                found = file.stat()
            except FileNotFoundError:  # another launcher was quicker
                continue
            if S_ISREG(found.st_mode):
                # The system notes when a file was read, at least once a day, unless it was told not to.
                files.append((max(found.st_atime, found.st_mtime), found.st_size, file))
        total = 0
        for number, (_, size, file) in enumerate(sorted(files, reverse=True)):
            total += size
            if total > self._most_bytes or number >= MOST_PROGRAMS:
                file.unlink(missing_ok=True)

    def _report(self, error: OSError) -> None:
        tell(
            f"stratagem: compiled programs cannot be kept in {self.folder}: {error}. With --no-compilation-cache the "
            "launcher does not try."
        )


def kept_programs(variables: Mapping[str, str]) -> CompiledPrograms | None:
    """Return the programs that this user's runs keep; None if the user keeps them otherwise, or not at all.

    Args:
        variables: The environment that tasks inherit.
    """
    if environment.COMPILATION_CACHE_DIR in variables or _is_off(variables.get(environment.COMPILATION_CACHE)):
        return None
    if folder := variables.get(environment.XDG_CACHE_HOME):
        return CompiledPrograms(Path(folder) / "stratagem" / "compiled")
    try:
        return CompiledPrograms(Path.home() / ".cache" / "stratagem" / "compiled")
    except RuntimeError:  # a user without a home
        return None


def kind_of_programs(machine: Machine, workers: int) -> str:
    """Return a name for programs that fit this machine's processor, and as many cores as a worker has.

    XLA divides loops of a program among the cores it sees when it compiles, and uses what the processor can do. JAX's
    key of a program contains neither; it does contain versions and flags.

    Args:
        machine: This machine.
        workers: How many workers share it.
    """
    cores = max(1, machine.num_cores // workers)
    return f"{hashlib.sha256(processor().encode()).hexdigest()[:12]}-{cores}"


def cache_variables(folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return what tells JAX to keep compiled programs in a folder.

    Args:
        folder: The folder of one task.
        variables: The environment that the task inherits. Settings of the user stay.
    """
    settings = {
        environment.COMPILATION_CACHE_DIR: str(folder),
        environment.OWN_PROGRAMS: str(folder),
        environment.CACHE_MIN_SECONDS: "0",
        # These lie in a folder whose name would become a part of JAX's key.
        environment.CACHE_OF_XLA: "none",
    }
    return {name: value for name, value in settings.items() if name not in variables}


def _is_off(value: str | None) -> bool:
    """Whether a switch is off, as JAX reads it."""
    return value is not None and value.lower() in ("n", "no", "f", "false", "off", "0")


def _locked_folder(known: Path) -> tuple[Path, int]:
    """Make the folder of a run; return it with its lock, which lasts until it is closed or this process ends."""
    hidden = Path(tempfile.mkdtemp(prefix=".new-", dir=known))
    lock = os.open(hidden / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # nobody else knows it
    run = known / hidden.name.replace(".new-", _RUN)
    return hidden.rename(run), lock


def _links(folder: Path, known: Path) -> Path:
    """Make a folder with links to all programs."""
    folder.mkdir()
    for program in known.glob(_PROGRAMS):
        try:
            os.link(program, folder / program.name)
        except FileNotFoundError:  # another launcher has just removed it
            continue
    return folder


def _is_whole(program: bytes) -> bool:
    """Whether a file is all that JAX meant to write. Its writer may have been killed, or found no room."""
    for name in _DECOMPRESSORS:
        try:
            importlib.import_module(name).decompress(program)
        except Exception:  # each has an error of its own; it may not be installed
            continue
        return True
    return False
