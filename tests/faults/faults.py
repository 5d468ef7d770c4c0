"""Faults that a worker brings upon itself or its launcher; each is given the folder of the run. See `table.py`."""

from __future__ import annotations

import atexit
import contextlib
import errno
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

units = 8
"""Units of the program's hidden layer."""

_kept: list[Any] = []


def _signal(number: int, to: Callable[[], int] = os.getpid) -> Callable[[Path], None]:
    return lambda folder: os.kill(to(), number)


kill, terminate, interrupt, hang_up, segfault = map(
    _signal, [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSEGV]
)
kill_launcher, terminate_launcher, interrupt_launcher, hang_up_launcher = (
    _signal(number, os.getppid) for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
)


def _freeze(pid: int) -> None:
    """Freeze a process for a second; another process lets it go on."""
    program = f"import os, time; os.kill({pid}, 19); time.sleep(1); os.kill({pid}, 18)"
    _kept.append(subprocess.Popen([sys.executable, "-c", program]))


def freeze_a_second(folder: Path) -> None:
    _freeze(os.getpid())


def freeze_launcher_a_second(folder: Path) -> None:
    _freeze(os.getppid())


def kill_guard(folder: Path) -> None:
    """Kill the process that ends the tasks if the launcher is killed."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == os.getppid() and b"guard.py" in (stat.parent / "cmdline").read_bytes():
                os.kill(int(stat.parent.name), signal.SIGKILL)


# Ends of the program ----------------------------------------------------------------------------


def raises(folder: Path) -> None:
    raise ValueError("broken on purpose")


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def raises_without_words(folder: Path) -> None:
    raise UnspeakableError


def leaves_well(folder: Path) -> None:
    sys.exit(0)


def leaves_with_words(folder: Path) -> None:
    sys.exit("no more data today")


def vanishes(folder: Path) -> None:
    os._exit(0)


def asks(folder: Path) -> None:
    input("How many epochs?")


def aborts(folder: Path) -> None:
    os.abort()


def raises_at_exit(folder: Path) -> None:
    atexit.register(raises, folder)


# Threads and processes of the program -----------------------------------------------------------


def raises_in_thread(folder: Path) -> None:
    thread = threading.Thread(target=raises, args=[folder])
    thread.start()
    thread.join()


def forks(folder: Path) -> None:
    """A child that ends in Python's way, which JAX lets nobody do: nobody waits for it."""
    if os.fork() == 0:
        sys.exit(0)


def forks_and_raises(folder: Path) -> None:
    if os.fork() == 0:
        raise ValueError("in the child")


def forks_a_pool(folder: Path) -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, 2]) == [1, 2]


def starts_a_program(folder: Path) -> None:
    subprocess.run([sys.executable, "-c", "print('a program of its own')"], check=True)


# What runs out ----------------------------------------------------------------------------------


def no_memory(folder: Path) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 22), resource.RLIM_INFINITY))
    bytearray(1 << 33)  # more than the heap has addresses for ahead (core/huge_pages.py)


def full_disk(folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))


def no_descriptors(folder: Path) -> None:
    """Let no file be opened, also not in the place of one that is closed: low numbers stay in use."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))
    with contextlib.suppress(OSError):
        while True:
            _kept.append(os.open(os.devnull, os.O_RDONLY))


def no_shared_memory(folder: Path) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    os.memfd_create = full


def clock_jumps(folder: Path) -> None:
    real = time.time
    time.time = lambda: real() - 86400.0


# Files ------------------------------------------------------------------------------------------


def backups_go(folder: Path) -> None:
    for thread in threading.enumerate():
        if thread.name == "stratagem-checkpoint":  # else it might make the folder again at once
            thread.join()
    (folder / "backup").rename(folder / "elsewhere")


def backups_become_a_file(folder: Path) -> None:
    backups_go(folder)
    (folder / "backup").touch()


def backups_cannot_be_made(folder: Path) -> None:
    (folder / "backup").touch()


def backups_are_another_runs(folder: Path) -> None:
    """Let another process have the folder of backups until it is killed."""
    program = "import sys; from stratagem.checkpoint.folder_lock import *; FolderLock(Path(sys.argv[1])).take(); "
    program += "print('taken', flush=True); sys.stdin.read()"
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    other = subprocess.Popen([sys.executable, "-c", program, str(folder / "backup")], **pipes)
    assert other.stdout is not None
    assert other.stdout.readline() == b"taken\n"
    _kept.append(other)


def data_go(folder: Path) -> None:
    os.unlink("rows.tfrecord")


def data_are_cut(folder: Path) -> None:
    os.truncate("rows.tfrecord", 500)


def logs_go(folder: Path) -> None:
    shutil.rmtree(Path(os.environ["STRATAGEM_COUNTERS_FILE"]).parent)


# The program, and what it says ------------------------------------------------------------------


def is_another_version(folder: Path) -> None:
    globals()["units"] = 9


def babbles(folder: Path) -> None:
    sys.stdout.buffer.write(b"\xff\xfe\0" * 1000 + b"x" * 1_000_000)
    print(flush=True)


def closes_its_output(folder: Path) -> None:
    os.close(1)
    os.close(2)
