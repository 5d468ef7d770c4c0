from __future__ import annotations

import pytest

from stratagem.cluster.hello import Hello, Peer
from stratagem.cluster.spec import ClusterSpec, Task

HELLO = Hello(
    Peer(Task("worker", 1), "nöde", 7), ClusterSpec({"worker": ["a:1", "b:1"], "ps": {3: "c:1"}}), {"jax": "1"}
)


def test_a_hello_survives_the_wire() -> None:
    text = HELLO.encode()
    assert "\n" not in text
    assert Hello.decode(text) == HELLO


def test_a_cluster_that_is_known_is_not_read_again() -> None:
    known = ClusterSpec({"worker": ["a:1", "b:1"]})
    text = Hello(HELLO.peer, ClusterSpec({"worker": ["a:1", "b:1"]}), {}).encode()
    assert Hello.decode(text, known).cluster is known
    other = Hello(HELLO.peer, ClusterSpec({"worker": ["a:1", "c:1"]}), {})
    assert Hello.decode(other.encode(), known) == other


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GET / HTTP/1.1",
        "[]",
        "{}",
        '{"peer": 1, "cluster": {}, "versions": {}}',
        '{"peer": ["boss", 0, "h", 1], "cluster": {}, "versions": {}}',
        '{"peer": ["worker", 0, "h", 1], "cluster": 3, "versions": {}}',
        '{"peer": ["worker", 0, "h", 1], "cluster": {}, "versions": 3}',
        '{"peer": ["worker", 1, "x", Infinity], "cluster": {"worker": ["a:1", "b:2"]}, "versions": {}}',
        '{"peer": ["worker", 1, "x", 1e400], "cluster": {"worker": ["a:1", "b:2"]}, "versions": {}}',
        '{"peer": ["worker", 1, "x", NaN], "cluster": {"worker": ["a:1", "b:2"]}, "versions": {}}',
        '{"peer": ["worker", 1, "x", true], "cluster": {"worker": ["a:1", "b:2"]}, "versions": {}}',
        '{"peer": ["worker", 1, {}, 1], "cluster": {"worker": ["a:1", "b:2"]}, "versions": {}}',
        '{"peer": ["worker", 1, "x", "\\ud800"], "cluster": {"worker": ["a:1", "b:2"]}, "versions": {}}',
        "[" * 100_000,
        "\ud800",
    ],
)
def test_what_strangers_send_is_no_hello(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # many kinds, all alike to the caller
        Hello.decode(text)
