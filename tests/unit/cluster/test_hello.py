from __future__ import annotations

import pytest

from stratagem.cluster.hello import Hello, Peer
from stratagem.cluster.spec import ClusterSpec, Task

HELLO = Hello(
    Peer(Task("worker", 1), "nöde", 7), ClusterSpec({"worker": ["a:1", "b:1"], "ps": {3: "c:1"}}), {"jax": "1"}
)


def test_a_hello_survives_the_wire() -> None:
    line = HELLO.encode()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert Hello.decode(line) == HELLO


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"GET / HTTP/1.1\r\n",
        b"\xff\xfe\n",
        b"[]\n",
        b"{}\n",
        b'{"peer": 1, "cluster": {}, "versions": {}}\n',
        b'{"peer": ["boss", 0, "h", 1], "cluster": {}, "versions": {}}\n',
        b'{"peer": ["worker", 0, "h", 1], "cluster": 3, "versions": {}}\n',
        b'{"peer": ["worker", 0, "h", 1], "cluster": {}, "versions": 3}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_what_strangers_send_is_no_hello(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # many kinds, all alike to the caller
        Hello.decode(line)
