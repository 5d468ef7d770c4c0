"""Stand-in for TensorFlow's runner of processes: workers of one function, each a process of its own."""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import cloudpickle
from absl.flags import FLAGS
from tools.tensorflow_suites import names
from tools.tensorflow_suites.case import need_of
from tools.tensorflow_suites.shims.clusters import create_cluster_spec as create_cluster_spec
from tools.tensorflow_suites.verdicts import PROTOCOLS, NotApplicable

from stratagem.testing import run_workers

_FOLDER: Final = "SUITE_BARRIERS"
_SECONDS: Final = 100


def test_main(*_: object, **__: object) -> None:
    """Do nothing: cases are run one by one."""


def run(
    fn: Any,
    cluster_spec: Mapping[str, Sequence[str]],
    *_: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    **__: Any,
) -> SimpleNamespace:
    """Run a function on new workers, and return what it returned on each.

    Raises:
        NotApplicable: The cluster has other tasks, or the function asks for what there is not.
    """
    if set(cluster_spec) != {"worker"}:
        raise NotApplicable(PROTOCOLS, "a runner of processes for tasks that are no workers")
    called = cloudpickle.dumps((fn, tuple(args), dict(kwargs or {})))
    with tempfile.TemporaryDirectory() as folder:
        results = run_workers(
            call_as_worker,
            len(cluster_spec["worker"]),
            args=[[str(each) for each in names.folders()], called],
            devices_per_worker=1,
            timeout_seconds=_SECONDS,
            env={_FOLDER: folder, "XLA_FLAGS": "--xla_force_host_platform_device_count=1"},
        )
    values = [result.value for result in results]
    needs = next((needs for needs, _ in values if needs), "")
    if needs:
        raise NotApplicable(needs)
    return SimpleNamespace(return_value=[value for _, value in values], stdout=[result.output for result in results])


def call_as_worker(folders: Sequence[str], called: bytes) -> tuple[str, Any]:
    """Call a function as one of several workers; return why it does not apply, or nothing, and what it returned.

    Args:
        folders: The suites.
        called: The function and its arguments.
    """
    names.install([Path(each) for each in folders])
    FLAGS(sys.argv[:1])
    fn, args, kwargs = cloudpickle.loads(called)
    try:
        return "", fn(*args, **kwargs)
    except Exception as error:
        needs = str(error) if isinstance(error, NotApplicable) else need_of(error)
        if not needs:
            raise
        return needs, None


class _Barrier:
    """A place where all workers of `run` wait for each other; files say who has come."""

    rounds = itertools.count()

    def wait(self) -> None:
        """Wait for all workers.

        Raises:
            TimeoutError: Some have not come.
        """
        number = next(self.rounds)
        config = json.loads(os.environ["TF_CONFIG"])
        files = [Path(os.environ[_FOLDER]) / f"{number}.{index}" for index in range(len(config["cluster"]["worker"]))]
        files[config["task"]["index"]].touch()
        until = time.monotonic() + _SECONDS
        while not all(file.exists() for file in files):
            if time.monotonic() > until:
                raise TimeoutError(f"not all of {files} were there after {_SECONDS} s")
            time.sleep(0.01)


def get_barrier() -> _Barrier:
    """Return the barrier of the workers of `run`."""
    return _Barrier()
