"""The numbers of a run over HTTP: text for Prometheus, and JSON for `stratagem top`.

The server only reads, and never changes anything. Without a secret it listens only on this machine. With the secret of
the cluster it listens on all addresses, and asks for a token that is made from the secret.
Source of the format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import math
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final

from stratagem.core.errors import ClusterError
from stratagem.core.spent import Spent
from stratagem.insight.observer import Observer
from stratagem.insight.samples import Sample

MOST_ANSWERS: Final = 8
"""Requests that are answered at the same time; more are refused, so that a flood of requests takes no memory."""

ANSWER_SECONDS: Final = 5.0
"""Longest wait for what a reader sends next."""

_HELP: Final = {
    "stratagem_steps_total": ("counter", "Steps that a task has finished."),
    "stratagem_seconds_total": ("counter", "Seconds of a task, by what it spent them on."),
    "stratagem_memory_bytes": ("gauge", "Memory that a task uses."),
    "stratagem_loss": ("gauge", "The latest loss of a task."),
    "stratagem_batches_ready": ("gauge", "Batches that a task had read ahead when it last asked for one."),
    "stratagem_functions_pending": ("gauge", "Functions that a coordinator has scheduled and that have not ended."),
    "stratagem_slow": ("gauge", "1 for a worker that the others waited for, by what it was slow in."),
    "stratagem_events_total": ("counter", "Events of the run: failures, restarts, slow workers."),
}

_GAUGES: Final[dict[str, Callable[[Sample], tuple[float | int, bool]]]] = {
    "stratagem_memory_bytes": lambda sample: (sample.memory, sample.memory > 0),
    "stratagem_loss": lambda sample: (sample.loss, math.isfinite(sample.loss)),
    "stratagem_batches_ready": lambda sample: (sample.ready, sample.ready >= 0),
    "stratagem_functions_pending": lambda sample: (sample.pending, sample.pending >= 0),
}
"""The value of a task, and whether it is known."""


def token_of(secret: bytes) -> str:
    """Return the token that readers send, made from the secret of a cluster; empty without a secret.

    Args:
        secret: The secret.
    """
    return hmac.new(secret, b"stratagem metrics", hashlib.sha256).hexdigest() if secret else ""


def exposition(observer: Observer) -> str:
    """Return the newest numbers as Prometheus reads them.

    Args:
        observer: The observer of the run.
    """
    newest = {name: history.last for name, history in observer.histories.items()}
    samples = {name: sample for name, sample in newest.items() if sample is not None}
    lines: list[str] = []
    for name, (kind, text) in _HELP.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{_labels(labels)} {value!r}" for labels, value in _values(name, observer, samples)]
    return "\n".join(lines) + "\n"


def _values(
    metric: str, observer: Observer, samples: Mapping[str, Sample]
) -> Iterator[tuple[dict[str, str], float | int]]:
    if metric == "stratagem_events_total":
        yield {}, len(observer.events)
    elif metric == "stratagem_slow":
        yield from (({"task": name, "part": found.part}, 1) for name, found in observer.stragglers.items())
    for task, sample in samples.items():
        if metric == "stratagem_steps_total":
            yield {"task": task}, sample.steps
        elif metric == "stratagem_seconds_total":
            for part in Spent._fields:
                yield {"task": task, "part": part}, getattr(sample.spent, part)
        elif metric in _GAUGES:
            value, is_known = _GAUGES[metric](sample)
            if is_known:
                yield {"task": task}, value


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}" if labels else ""


class MetricsServer:
    """The server, in its own threads, until the `with` block ends.

    Args:
        observer: The observer of the run.
        port: The port that it listens on; 0 takes a free one.
        secret: The secret of the cluster; empty if there is none.

    Attributes:
        address: Host and port.

    Raises:
        ClusterError: The port is taken.
    """

    def __init__(self, observer: Observer, port: int, secret: bytes) -> None:
        token = token_of(secret)
        slots = threading.BoundedSemaphore(MOST_ANSWERS)

        def answer(path: str, authorization: str) -> tuple[int, str, str]:
            """Return status, content type and text."""
            if token and not hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode()):
                return 401, "text/plain", "A token is needed; `stratagem top --token` prints it.\n"
            if path == "/metrics":
                return 200, "text/plain; version=0.0.4; charset=utf-8", exposition(observer)
            if path == "/state":
                return 200, "application/json", json.dumps(observer.as_dict())
            return 404, "text/plain", "There are /metrics and /state.\n"

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = MOST_ANSWERS

            def process_request(self, request: Any, client_address: Any) -> None:
                if not slots.acquire(blocking=False):
                    self.shutdown_request(request)
                    return
                super().process_request(request, client_address)

            def process_request_thread(self, request: Any, client_address: Any) -> None:
                try:
                    super().process_request_thread(request, client_address)
                finally:
                    slots.release()

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Print nothing about a client that hangs up or sends an invalid request."""

        try:
            self._server = Server(("0.0.0.0" if token else "127.0.0.1", port), functools.partial(_Handler, answer))
        except OSError as error:
            raise ClusterError(
                f"The server cannot listen on --metrics-port {port}: {error}.", "Name another port; 0 takes a free one."
            ) from error
        host = socket.gethostname() if token else "127.0.0.1"
        self.address = f"{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="stratagem-metrics", daemon=True)

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    timeout = ANSWER_SECONDS
    server_version = "stratagem"
    sys_version = ""

    def __init__(self, answer: Callable[[str, str], tuple[int, str, str]], *connection: Any) -> None:
        self._answer = answer
        super().__init__(*connection)  # which answers

    def do_GET(self) -> None:
        status, kind, text = self._answer(self.path, self.headers.get("Authorization", ""))
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal shows the tasks."""
