from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from stratagem.core.errors import ClusterError
from stratagem.core.spent import Spent
from stratagem.insight.metrics import MOST_ANSWERS, MetricsServer, exposition, token_of
from stratagem.insight.observer import Observer
from stratagem.insight.samples import Sample

SECRET = b"a secret that is long enough"


@pytest.fixture
def observer(tmp_path: Path) -> Observer:
    observer = Observer("train.py")
    observer.follow({"worker 0": tmp_path / "0"})
    sample = Sample(1.0, 1.0, 11, 70, "computing", Spent(input=0.5, computing=2.0), 0.25, 1 << 20, True, ready=3)
    observer.histories["worker 0"].add(sample)
    observer.note("worker 0 failed.")
    return observer


def _get(address: str, path: str, token: str = "") -> tuple[int, str]:
    request = urllib.request.Request(f"http://{address}{path}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_prometheus_reads_the_newest_numbers(observer: Observer) -> None:
    lines = exposition(observer).splitlines()
    assert 'stratagem_steps_total{task="worker 0"} 70' in lines
    assert 'stratagem_seconds_total{task="worker 0",part="computing"} 2.0' in lines
    assert 'stratagem_memory_bytes{task="worker 0"} 1048576' in lines
    assert 'stratagem_loss{task="worker 0"} 0.25' in lines
    assert "stratagem_events_total 1" in lines
    assert 'stratagem_batches_ready{task="worker 0"} 3' in lines
    assert not any(line.startswith("stratagem_functions_pending{") for line in lines)
    assert sum(line.startswith("# TYPE") for line in lines) == 8


def test_it_answers_on_this_machine_alone_without_a_secret(observer: Observer) -> None:
    with MetricsServer(observer, 0, b"") as server:
        assert server.address.startswith("127.0.0.1:")
        assert _get(server.address, "/metrics") == (200, exposition(observer))
        status, text = _get(server.address, "/state")
        assert (status, json.loads(text)["tasks"]["worker 0"]["steps"]) == (200, 70)
        assert _get(server.address, "/elsewhere")[0] == 404
        port = int(server.address.rpartition(":")[2])
        with pytest.raises(ClusterError, match=r"cannot listen on --metrics-port \d+: "):
            MetricsServer(observer, port, b"")
        others = [info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
        for host in {other for other in others if not other.startswith("127.")}:
            with pytest.raises(OSError, match="refused"):
                socket.create_connection((host, port), timeout=5)


def test_strangers_are_refused_where_there_is_a_secret(observer: Observer) -> None:
    with MetricsServer(observer, 0, SECRET) as server:
        address = f"127.0.0.1:{server.address.rpartition(':')[2]}"
        for token in ("", "guess", token_of(b"another secret that is long")):
            assert _get(address, "/state", token)[0] == 401
        assert _get(address, "/state", token_of(SECRET))[0] == 200
    assert SECRET.decode() not in token_of(SECRET)


@pytest.mark.thorough
def test_who_floods_it_is_turned_away_and_others_are_answered_after(observer: Observer) -> None:
    with MetricsServer(observer, 0, b"") as server:
        host, port = server.address.split(":")
        threads = threading.active_count()
        silent = [socket.create_connection((host, int(port)), timeout=5) for _ in range(5 * MOST_ANSWERS)]
        assert threading.active_count() <= threads + MOST_ANSWERS
        for connection in silent:
            connection.close()
        while True:
            try:
                assert _get(server.address, "/metrics")[0] == 200
                break
            except (ConnectionError, urllib.error.URLError):
                continue  # the last of those that hung up still has its place
