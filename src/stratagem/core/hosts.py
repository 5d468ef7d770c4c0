"""Addresses of hosts: which of them are this machine's, and where a task listens so that it is reached."""

from __future__ import annotations

import ipaddress
import socket


def bind_host(host: str) -> str:
    """Return where a task must listen so that `host` reaches it, and no wider than needed.

    Args:
        host: The host in the task's own address.

    Returns:
        `host` itself where it means this machine (`own_addresses`), otherwise "::" or "0.0.0.0".

    Example:
        >>> bind_host("127.0.0.1")
        '127.0.0.1'
    """
    if own_addresses(host):
        return host
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"


def own_addresses(host: str) -> list[str]:
    """Return the addresses at which a task listens so that `host` reaches it.

    Args:
        host: The host in the task's own address.

    Returns:
        None where it must listen at all, because the name is not known yet, or leads to a load balancer or to one of
        several networks, or means 127.0.1.1 on this machine alone (its own name on a fresh Ubuntu): the others know it
        by another address.

    Example:
        >>> own_addresses("127.0.0.1")
        ['127.0.0.1']
    """
    addresses = addresses_of(host)
    own = [address for address in addresses if _is_of_this_machine(address)]
    if _means_this_machine(host):  # of the addresses of "localhost", one may not exist on this machine
        return own
    return [] if own != addresses or any(map(_is_loopback, addresses)) else own


def is_loopback(host: str) -> bool:
    """Return whether a host means the machine that asks, whichever it is."""
    addresses = addresses_of(host)
    return bool(addresses) and all(map(_is_loopback, addresses))


def addresses_of(host: str) -> list[str]:
    """Return the addresses of a host; none where its name is not known, as that of a task that starts may not be."""
    try:
        return list(dict.fromkeys(str(info[4][0]) for info in socket.getaddrinfo(host, None)))
    except (OSError, ValueError):
        return []


def own_end(connection: socket.socket) -> str:
    """Return the address of this machine by which a connection goes, for others on the same network.

    Args:
        connection: A connection by TCP.
    """
    address = str(connection.getsockname()[0])
    mapped = ipaddress.ip_address(address.partition("%")[0])
    # A socket for both families writes addresses of IPv4 as those of IPv6; nothing can be bound to those.
    found = mapped.ipv4_mapped if isinstance(mapped, ipaddress.IPv6Address) else None
    return address if found is None else str(found)


def _means_this_machine(host: str) -> bool:
    """Return whether a host is a name or an address that means this machine to itself alone, everywhere."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _is_of_this_machine(address: str) -> bool:
    """Return whether a socket can be bound to an address, which only its own machine can."""
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(socket.getaddrinfo(address, 0, family, socket.SOCK_DGRAM)[0][4])
    except (OSError, ValueError):
        return False
    return True
