"""Networks by name and by number."""

from __future__ import annotations

import pytest

from stratagem.core.errors import InputError
from stratagem.plan.networks import SOCKETS, faster, network, wire


@pytest.mark.parametrize(
    ("text", "latency", "seconds_per_byte"),
    [
        ("40gbit,30us", 30e-6, 8 / 40e9),
        ("9.5 Gbit/s, 0.06 ms", 60e-6, 8 / 9.5e9),
        ("10Gbps,1s", 1.0, 8 / 10e9),
        ("2GiB/s,500ns", 500e-9, 1 / 2**31),
        ("800kB,2ms", 0.002, 1 / 800e3),
        ("8Gb/s,2ms", 0.002, 1e-9),
    ],
)
def test_bandwidth_and_latency(text: str, latency: float, seconds_per_byte: float) -> None:
    found = network(text)
    assert (found.latency, found.seconds_per_byte) == (pytest.approx(latency), pytest.approx(seconds_per_byte))
    assert found.combining == 0.0


def test_ethernet_carries_headers_too_and_hosts_cost_something() -> None:
    found = network("10GbE")
    assert wire(10e9).seconds_per_byte == pytest.approx(0.8e-9 * 1538 / 1448)
    assert found.seconds_per_byte == wire(10e9).seconds_per_byte
    assert found.combining == SOCKETS.combining > 0
    assert found.start == SOCKETS.start > 0
    assert found.latency == pytest.approx(SOCKETS.latency + 20e-6)


@pytest.mark.parametrize("text", ["", "11gbe", "10gbit", "10gbit,30", "0gbit,1us", "1.2.3gbit,1us", "10gbit,1us,2us"])
def test_what_is_no_network(text: str) -> None:
    with pytest.raises(InputError) as raised:
        network(text)
    assert str(raised.value).startswith(f"--network is {text!r}.")
    assert "--network 40gbit,30us" in str(raised.value)


def test_the_next_faster_network() -> None:
    assert [faster(name) for name in ("1gbe", "10GbE", "25gbe", "100gbe", "40gbit,30us")] == [
        "10gbe",
        "25gbe",
        "100gbe",
        None,
        None,
    ]
