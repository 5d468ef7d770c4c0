"""Where a task listens."""

from __future__ import annotations

import socket

import pytest

from stratagem.core import hosts
from stratagem.core.hosts import bind_host, is_loopback, own_end

EVERYWHERE = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"


@pytest.mark.parametrize(
    ("host", "bound"),
    [
        ("localhost", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("192.0.2.77", EVERYWHERE),  # of another machine: a load balancer, or a container's host
        ("no-such-host.invalid", EVERYWHERE),
    ],
)
def test_only_what_is_this_machines_binds_to_itself(host: str, bound: str) -> None:
    assert bind_host(host) == bound


@pytest.mark.parametrize(
    ("addresses", "bound"),
    [(["10.0.0.5"], "node1"), (["10.0.0.5", "fd00::5"], "node1"), (["127.0.1.1"], EVERYWHERE), ([], EVERYWHERE)],
)
def test_a_name_that_means_loopback_here_alone_is_listened_for_everywhere(
    addresses: list[str], bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "addresses_of", lambda host: addresses)
    monkeypatch.setattr(hosts, "_is_of_this_machine", lambda address: True)
    assert bind_host("node1") == bound


def test_localhost_is_listened_for_where_the_machine_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container without IPv6 has ::1 in /etc/hosts all the same."""
    monkeypatch.setattr(hosts, "addresses_of", lambda host: ["::1", "127.0.0.1"])
    monkeypatch.setattr(hosts, "_is_of_this_machine", lambda address: address == "127.0.0.1")
    assert hosts.own_addresses("localhost") == ["127.0.0.1"]
    assert bind_host("localhost") == "localhost"


def test_which_names_lead_back() -> None:
    assert [is_loopback(host) for host in ("localhost", "::1", "192.0.2.77", "no-such-host.invalid")] == [
        *(True, True),
        *(False, False),
    ]


@pytest.mark.parametrize("dual", [False, True])
def test_the_own_end_of_a_connection_can_be_bound(dual: bool) -> None:
    """Where a socket is for both families it calls 127.0.0.1 ::ffff:127.0.0.1."""
    if dual and not socket.has_dualstack_ipv6():
        pytest.skip("there is no IPv6")
    family = socket.AF_INET6 if dual else socket.AF_INET
    with (
        socket.create_server(("::" if dual else "127.0.0.1", 0), family=family, dualstack_ipv6=dual) as server,
        socket.create_connection(("127.0.0.1", server.getsockname()[1])) as near,
    ):
        far, _ = server.accept()
        with far:
            assert (own_end(near), own_end(far)) == ("127.0.0.1", "127.0.0.1")
