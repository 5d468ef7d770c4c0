"""Networks by name, and the cost that a host adds to them."""

from __future__ import annotations

import re
from typing import Final

from stratagem.core.errors import InputError
from stratagem.plan.costs import Link

_PAYLOAD: Final = 1448 / 1538
"""TCP over IPv4 gives a program 1448 of each 1538 bytes that an Ethernet carries, preamble and gap included."""

_RATES: Final = {"1gbe": 1e9, "10gbe": 10e9, "25gbe": 25e9, "100gbe": 100e9}
"""Bits a second."""

_SWITCHED: Final = 20e-6
"""Seconds that a small message takes from card to card through a switch of a data centre, both cards included."""

GLOO: Final = Link(latency=0.0, combining=9.5e-10, start=3.7e-3)
"""Cost of Gloo for a worker that has one core of an AMD EPYC: `benchmarks/growth.py`, 2026-11-22. Most of the start
is the time that Gloo's thread waits for that core. The cost of one more message is too small to be seen beside it."""

SOCKETS: Final = Link(latency=4.8e-5, combining=1.1e-10, start=4.3e-5)
"""Cost of connections of Stratagem's own for such a worker (2026-11-30), between network namespaces: without the wire,
whose speed is known. Copies are made while bytes are on their way, so few of them are seen beside it."""

MEMORY: Final = Link(latency=2.5e-5, combining=1.0e-10, start=2.5e-5)
"""Cost of sums through memory for such workers, measured in the same way."""

_UNITS: Final = {"bit": 1 / 8, "bps": 1 / 8, "b": 1 / 8, "B": 1.0}
_PREFIXES: Final = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30}
_SECONDS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_OWN = re.compile(r"([\d.]+)\s*([kKmMgG]i?|)(bit|bps|b|B)(?:/s)?\s*,\s*([\d.]+)\s*(s|ms|us|ns)")


def wire(bits_per_second: float) -> Link:
    """Return what an Ethernet costs a program that sends bytes over TCP, without latency and without the hosts.

    Args:
        bits_per_second: Its nominal speed.
    """
    return Link(seconds_per_byte=8 / (bits_per_second * _PAYLOAD))


def network(text: str, host: Link = SOCKETS) -> Link:
    """Return the network that a user names.

    Args:
        text: `1gbe`, `10gbe`, `25gbe` or `100gbe`: an Ethernet between hosts, to which the cost of the hosts is added.
            Or the total bandwidth and latency between two workers, as `stratagem doctor` measures them.
        host: Cost of a host itself, for an Ethernet; that of connections of Stratagem's own if it is left out.

    Raises:
        InputError: The text is neither.

    Example:
        >>> network("10GB/s, 2ms")
        Link(latency=0.002, seconds_per_byte=1e-10, combining=0.0, start=0.0)
        >>> round(network("10gbe").seconds_per_byte * 1e9, 3)
        0.85
    """
    rate = _RATES.get(text.lower())
    if rate is not None:
        return Link(latency=_SWITCHED) + wire(rate) + host
    found = _OWN.fullmatch(text.strip())
    try:
        if found is not None:
            amount, prefix, unit, time, of_time = found.groups()
            bandwidth = float(amount) * _PREFIXES[prefix.lower()] * _UNITS[unit]
            return Link(float(time) * _SECONDS[of_time], 1 / bandwidth)
    except (ValueError, ZeroDivisionError):
        pass
    raise InputError(
        f"--network is {text!r}.",
        "Exchanges cannot be predicted without its bandwidth and latency.",
        f"Write one of {', '.join(_RATES)}, or a bandwidth and a latency: --network 40gbit,30us",
    )


def faster(text: str) -> str | None:
    """Return the name of the next faster Ethernet, or None if there is none."""
    names = list(_RATES)
    place = names.index(text.lower()) + 1 if text.lower() in names else len(names)
    return names[place] if place < len(names) else None
