"""What holds for every test: the backend, four virtual CPU devices, and that a test leaves nothing behind."""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import importlib
import importlib.metadata
import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import quick_xla
from tests.parts import is_in_part

# Keras reads this once, when it is imported; a test that imports keras must find it set.
os.environ["KERAS_BACKEND"] = "jax"
# The suite runs on virtual CPU devices. On a machine with a GPU: JAX_PLATFORMS=cuda,cpu pytest -m gpu
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The cluster of a shell that runs the tests is not the cluster of the tests.
os.environ.pop("TF_CONFIG", None)
# What earlier runs have compiled stays out of the tests, and theirs out of what the user keeps.
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"

# Of each kind of program one test compiles as users do: `as_users_do`; with the variable of quick_xla.py all of them.
quick_xla.set_up(os.environ, importlib.metadata.version("jaxlib"))

import jax
import keras  # noqa: F401 - sets environment variables of its own, once; no test should be blamed for it
import pytest

with contextlib.suppress(ImportError):
    importlib.import_module("tensorflow")  # the same; Keras imports it where it is

NUM_VIRTUAL_DEVICES = 4
"""Enough for the conformance suite (1, 2, 3, 4 devices). More would only slow a machine with two cores."""

jax.config.update("jax_num_cpu_devices", NUM_VIRTUAL_DEVICES)

_LIGHT_START = str(Path(__file__).parent / "light_start")
"""What processes that tests start begin with; see there."""
if _LIGHT_START not in os.environ.get("PYTHONPATH", ""):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_LIGHT_START, os.environ.get("PYTHONPATH")]))
for _module in [name for name, module in sys.modules.items() if module is None]:
    del sys.modules[_module]  # pytest-xdist's own processes began so too; tests themselves may use all there is

# Most objects here stay (modules, programs): looking through them all for rubbish took a tenth of the time.
gc.freeze()
gc.set_threshold(10_000, 10, 100)

SLOW_SECONDS = 5.0
"""A test of `make test` that takes longer is named at the end of the run: see CONTRIBUTING.md."""

_OWN_VARIABLES = {"PYTEST_CURRENT_TEST"}
_SECONDS_TO_END = 2.0
"""A thread or process that is ending when its test ends may take this long."""


_ROOT = Path(__file__).parents[1]
_RING = tuple(
    str(_ROOT / folder / part) for folder in ("tests/unit", "src/stratagem") for part in ("estimator", "migrate", "tf")
)
"""What the core does not know: `make test` runs whole programs of it (tests/programs, tests/tutorials), and leaves the
two thousand tests of its single names to `make test-rest`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part", metavar="K/N", help="run one of N parts of the tests, the K-th from 1: all parts run all"
    )


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Look for tests only in `test_*.py`: other files are programs, which `--doctest-modules` would run to look at."""
    is_other = collection_path.suffix == ".py" and not collection_path.name.startswith("test_")
    return True if is_other else None


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out tests by their marks
def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    cases: collections.Counter[tuple[Path, str]] = collections.Counter()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is not None:
            function = (item.path, item.name.partition("[")[0])
            if cases[function] % sampled.args[0]:
                item.add_marker("thorough")
            cases[function] += 1
        if str(item.path).startswith(_RING) and item.get_closest_marker("quick") is None:
            item.add_marker("thorough")
    if config.option.part is not None:
        chosen = [is_in_part(item.nodeid, config.option.part) for item in items]
        left_out = [item for item, is_chosen in zip(items, chosen, strict=True) if not is_chosen]
        config.hook.pytest_deselected(items=left_out)
        items[:] = itertools.compress(items, chosen)


def pytest_runtest_setup(item: pytest.Item) -> None:
    is_rehearsal = "STRATAGEM_GPU_REHEARSAL" in os.environ
    if item.get_closest_marker("gpu") is not None and "cuda" not in os.environ["JAX_PLATFORMS"] and not is_rehearsal:
        pytest.skip("needs an NVIDIA GPU: make gpu; or make gpu ON=cpu, a rehearsal")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the tests that are too slow for `make test`, where those alone were chosen."""
    if not config.option.markexpr.startswith("quick or not"):
        return
    passed = terminalreporter.getreports("passed")
    slow = sorted((each.duration, each.nodeid) for each in passed if each.duration > SLOW_SECONDS)
    if slow:
        terminalreporter.section(f"tests of make test that took longer than {SLOW_SECONDS:g} s")
        terminalreporter.line("Make them cheaper, or let `make test-all` alone run them (CONTRIBUTING.md).")
        for seconds, test in reversed(slow):
            terminalreporter.line(f"{seconds:6.1f} s  {test}")


@pytest.fixture
def as_users_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes that a test starts load and compile all that they do by default."""
    paths = os.environ["PYTHONPATH"].split(os.pathsep)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path != _LIGHT_START))
    # Not a lone space: XLA takes it for the name of a file, and aborts.
    monkeypatch.setenv("XLA_FLAGS", " ".join(quick_xla.flags_of_user(os.environ)))
    monkeypatch.delenv("JAX_DISABLE_MOST_OPTIMIZATIONS", raising=False)


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """Return a list that gets the name of each program that XLA compiles."""
    events: list[str] = []

    def on_event(event: str, seconds: float, **facts: Any) -> None:
        if event.endswith("backend_compile_duration"):
            events.append(str(facts.get("fun_name", event)))

    jax.monitoring.register_event_duration_secs_listener(on_event)
    yield events
    if hasattr(jax.monitoring, "unregister_event_duration_listener"):
        jax.monitoring.unregister_event_duration_listener(on_event)
    else:  # before JAX 0.8
        importlib.import_module("jax._src.monitoring")._unregister_event_duration_listener_by_callback(on_event)


@functools.cache
def _names_tf(file: Path) -> bool:
    return "stratagem.tf" in file.read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def derivatives_as_in_a_process_of_its_own(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let a test that does not name `stratagem.tf` meet Keras's own derivatives, also after one that does."""
    installed: Any = sys.modules.get("stratagem.tf.keras.derivatives.compat")
    if installed is None or _names_tf(request.node.path):
        yield
        return
    installed.uninstall()
    yield
    installed.install()


@pytest.fixture
def default_sigterm() -> Iterator[None]:
    """Let SIGTERM do what it does in a program without a handler; give it back to the test runner's afterwards."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def plain_keras() -> Iterator[None]:
    """Let a test meet Keras's own models and optimizers, also after a test that used `stratagem.tf.keras`."""
    from stratagem.core import patches

    installed: Any = sys.modules.get("stratagem.tf.keras.compat")
    if installed is None:
        yield
        return
    patches.undo(installed.__name__)
    yield
    installed.install()


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail a test that leaks an environment variable, a thread or a child process into the next one."""
    environment, threads, children = dict(os.environ), set(threading.enumerate()), _child_processes()
    yield
    leaks = _changed_variables(environment)
    if set(threading.enumerate()) - threads:
        # From Python 3.13 on the frames of an exception that was caught hold each other, and a reader with its thread.
        gc.collect()
    for thread in set(threading.enumerate()) - threads:
        # pyzmq starts its one, and JAX calls back from its own, both for the life of the process.
        if type(thread).__name__ in ("GarbageCollectorThread", "_DummyThread"):
            continue
        if thread.is_alive():
            gc.collect()  # a failed `fit` leaves the list of callbacks, with Keras's pool, in a cycle
        thread.join(_SECONDS_TO_END)
        if thread.is_alive():
            leaks.append(f"thread {thread.name!r} still runs; end and join it in the test")
    for pid, command in _child_processes().items():
        if pid in children:
            continue
        leaks.append(f"process {pid} ({command}) is still there; end it and wait for it in the test")
    if leaks:
        pytest.fail("The test left something behind:\n  " + "\n  ".join(leaks), pytrace=False)


def _changed_variables(before: dict[str, str]) -> list[str]:
    """Describe the environment variables that differ from `before`, and put them back."""
    changed = [name for name in before.keys() | os.environ.keys() if before.get(name) != os.environ.get(name)]
    leaks = []
    for name in sorted(set(changed) - _OWN_VARIABLES):
        leaks.append(f"{name} was {before.get(name)!r}, is {os.environ.get(name)!r}; use monkeypatch.setenv")
        if name in before:
            os.environ[name] = before[name]
        else:
            del os.environ[name]
    return leaks


def _child_processes() -> dict[int, str]:
    """Return the command of each child of this process by its pid (empty where there is no /proc)."""
    if not sys.platform.startswith("linux"):
        return {}
    try:  # most tests have none, and to look through all processes takes five milliseconds, twice for each test
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return {}
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            command = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except (OSError, IndexError, ValueError):  # it ended while we looked
            continue
        # The standard library starts its resource tracker once, for the life of the process.
        if parent == os.getpid() and "multiprocessing.resource_tracker" not in command:
            children[int(stat.parent.name)] = command or "ended, never waited for"
    return children
