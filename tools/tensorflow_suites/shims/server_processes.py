"""Stand-in for clusters of TensorFlow's tests whose servers are processes, which the tests kill and start again."""

from __future__ import annotations

import multiprocessing.connection
import os
import secrets
import tempfile
import threading
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

from tools.tensorflow_suites import names
from tools.tensorflow_suites.shims.listening import addresses

import stratagem.tf as tf
from stratagem.core import environment

_processes: Final = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["stratagem.ps.serving", "stratagem.tf.keras.compat", names.__name__])


def serve(folders: list[Path], spec: dict[str, list[str]], job: str, index: int) -> None:
    """Serve as one task of a cluster, in a process of its own.

    Args:
        folders: The suites; functions that are sent here are found by the names of their modules.
        spec: The cluster.
        job: The type of the task.
        index: Its index.
    """
    names.install(folders)
    threading.Thread(target=end_with_parent, daemon=True).start()
    tf.distribute.Server(spec, job_name=job, task_index=index).join()


def end_with_parent() -> None:
    """End this process when the one that runs the tests is gone: it may be compiling, and would go on for long."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


class ProcessCluster:
    """A cluster that has a process for each server.

    Args:
        spec: Its addresses.
    """

    def __init__(self, spec: dict[str, list[str]]) -> None:
        if environment.SECRET_FILE not in os.environ:
            file = Path(tempfile.mkdtemp()) / "secret"
            file.write_text(secrets.token_hex(32))
            os.environ[environment.SECRET_FILE] = str(file)
        self._spec = spec
        self.cluster_resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(spec), rpc_layer="grpc"
        )
        addresses.clear()
        addresses.update({(job, index): at for job, all_at in spec.items() for index, at in enumerate(all_at)})
        self._running: dict[tuple[str, int], ForkServerProcess] = {}
        for job, index in addresses:
            self.start_task(job, index)

    def start_task(self, job: str, index: int) -> None:
        """Start a task."""
        process = _processes.Process(target=serve, args=(names.folders(), self._spec, job, index), daemon=True)
        process.start()
        self._running[job, index] = process

    def kill_task(self, job: str, index: int) -> None:
        """Kill a task, as SIGKILL does."""
        process = self._running[job, index]
        process.kill()
        process.join()

    def stop(self) -> None:
        """Kill all tasks."""
        for job, index in self._running:
            self.kill_task(job, index)
