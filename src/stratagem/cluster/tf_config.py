"""TF_CONFIG: the cluster and this task as JSON, read strictly and shown back where it is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from stratagem.cluster.resolver import ClusterResolver
from stratagem.cluster.spec import ClusterSpec, SpecError, Task
from stratagem.core import environment as env
from stratagem.core.errors import ClusterError

EXAMPLE = '{"cluster": {"worker": ["localhost:12345", "localhost:23456"]}, "task": {"type": "worker", "index": 0}}'
LINES_AROUND_FAULT = 8

Path = tuple[str | int, ...]


class TFConfigClusterResolver(ClusterResolver):
    """Read the cluster from TF_CONFIG (`tf.distribute.cluster_resolver.TFConfigClusterResolver`).

    TF_CONFIG is read at each call. Without it the cluster is empty: a single worker.

    Args:
        task_type: Overrides the type in TF_CONFIG.
        task_id: Overrides the index in TF_CONFIG; 0 counts as given.
        rpc_layer: Overrides "rpc_layer" in TF_CONFIG.
        environment: What `environment` returns.
        environ: Where TF_CONFIG stands; `os.environ` when None.

    Raises:
        ClusterError: From every method, when TF_CONFIG cannot be used as it is. The message shows it
            with the fault marked.

    Example:
        >>> resolver = TFConfigClusterResolver(environ={"TF_CONFIG": EXAMPLE})
        >>> resolver.task_type, resolver.task_id, resolver.master()
        ('worker', 0, 'localhost:12345')
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._task_type = task_type
        self._task_id = task_id
        self._rpc_layer = rpc_layer
        self._environment = environment or ""
        self._environ = os.environ if environ is None else environ

    def cluster_spec(self) -> ClusterSpec:
        """Return the cluster of TF_CONFIG, empty without one."""
        config = read(self._environ)
        spec = read_cluster(config)
        self._task(config, spec)
        return spec

    @property
    def task_type(self) -> str | None:
        """The type of this task, or None without TF_CONFIG."""
        task = self._own_task()
        return self._task_type if task is None else task.type

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        """The index of this task, or None without TF_CONFIG."""
        task = self._own_task()
        return self._task_id if task is None else task.index

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        """What `master` writes before "://"."""
        return self._rpc_layer or read(self._environ).get("rpc_layer")

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    def _own_task(self) -> Task | None:
        config = read(self._environ)
        return self._task(config, read_cluster(config))

    def _task(self, config: dict[str, Any], spec: ClusterSpec) -> Task | None:
        overrides = {"type": self._task_type, "index": self._task_id}
        return read_task(config, spec, {key: value for key, value in overrides.items() if value is not None})


def read(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return TF_CONFIG as a dict, empty when it is not set.

    Args:
        environ: Environment of the process.

    Raises:
        ClusterError: It is not a JSON object.
    """
    text = environ.get(env.TF_CONFIG, "").strip()
    if not text:
        return {}
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1] if text.splitlines() else text
        start = max(0, error.colno - 60)
        fault = f"    {line[start : error.colno + 60]}\n    {' ' * (error.colno - 1 - start)}^ {error.msg}"
        raise ClusterError(
            f"TF_CONFIG is not JSON:\n{fault}",
            "The cluster would be unknown.",
            f"Write it with json.dumps, which uses double quotes, for instance\n    {EXAMPLE}",
        ) from None
    if not isinstance(config, dict):
        raise _fault(config, (), "TF_CONFIG is not a JSON object", "The cluster would be unknown.", f"Write {EXAMPLE}")
    return config


def read_cluster(config: dict[str, Any]) -> ClusterSpec:
    """Return the cluster in a TF_CONFIG, empty when it has none.

    Args:
        config: What `read` returned.

    Raises:
        ClusterError: The cluster cannot be used.
    """
    try:
        return ClusterSpec(config.get("cluster") or {})
    except SpecError as error:
        path = ("cluster", *error.path)
        raise _fault(config, path, error.found.rstrip("."), error.consequence, error.remedy) from None


def read_task(config: dict[str, Any], spec: ClusterSpec, overrides: Mapping[str, Any]) -> Task | None:
    """Return this process's task, or None when there is neither a task nor a cluster.

    Args:
        config: What `read` returned.
        spec: The cluster in it.
        overrides: "type" and "index" where the caller knows better.

    Raises:
        ClusterError: The task is missing, or not one of the cluster.
    """
    written = config.get("task")
    if written is not None and not isinstance(written, dict):
        raise _fault(
            config, ("task",), f"The task is {written!r}", "This process could not tell which task it is.", _TASK_REMEDY
        )
    task = {**(written or {}), **overrides}
    if not spec and "type" not in task:
        return None
    for key in ("type", "index"):
        if key not in task:
            found = f"TF_CONFIG has a cluster and no task {key}"
            path = ("task",) if written else ()
            raise _fault(config, path, found, "This process could not tell which task it is.", _TASK_REMEDY)
    try:
        own = Task(task["type"], _index(task["index"]))
        spec.check_task(own)
    except SpecError as error:
        raise _fault(config, ("task", *error.path), error.found.rstrip("."), error.consequence, error.remedy) from None
    return own


_TASK_REMEDY = 'Write "task": {"type": "worker", "index": 0}, with an index of its own for each task.'


def _index(index: object) -> Any:
    # TensorFlow reads "1" as 1, and shell scripts write it so.
    return int(index) if isinstance(index, str) and index.isascii() and index.isdigit() else index


def _fault(config: object, path: Path, found: str, consequence: str, remedy: str) -> ClusterError:
    return ClusterError(f"{found}:\n{picture(config, path)}", consequence, remedy)


def picture(config: object, path: Path) -> str:
    """Draw a JSON value over several lines and mark the place of a fault.

    Args:
        config: The value.
        path: Keys that lead to the fault; where they lead nowhere, the nearest value is marked.

    Returns:
        Lines indented by four blanks; far from the fault they are left out.

    Example:
        >>> print(picture({"task": {"type": "boss"}}, ("task", "type")))
            {
              "task": {
                "type": "boss"   <-- here
              }
            }
    """
    lines = list(_lines(config, (), "", ""))
    while path and path not in [at for at, _ in lines]:
        path = path[:-1]
    fault = [at for at, _ in lines].index(path)
    first, last = max(0, fault - LINES_AROUND_FAULT), fault + LINES_AROUND_FAULT + 1
    shown = [text + ("   <-- here" if at == fault else "") for at, (_, text) in enumerate(lines)]
    kept = ["..."] * (first > 0) + shown[first:last] + ["..."] * (last < len(lines))
    return "\n".join(f"    {line}" for line in kept)


def _lines(value: object, path: Path, indent: str, label: str) -> Iterator[tuple[Path | None, str]]:
    """Yield (path, text) for each line; the path only where a value begins."""
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        brackets = "{}" if isinstance(value, dict) else "[]"
        yield path, f"{indent}{label}{brackets[0]}"
        for place, (key, item) in enumerate(items):
            comma = "," if place < len(value) - 1 else ""
            key_label = f"{json.dumps(key)}: " if isinstance(value, dict) else ""
            *body, (at, text) = _lines(item, (*path, key), indent + "  ", key_label)
            yield from body
            yield at, text + comma
        yield None, f"{indent}{brackets[1]}"
    else:
        yield path, f"{indent}{label}{json.dumps(value)}"
