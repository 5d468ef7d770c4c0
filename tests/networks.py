"""A network between hosts: each a process with a network of its own, whose packets pass through the test.

The kernel hands the packets that a host sends to a file (a TUN device), which the test reads and writes. So a test
loses as many as it likes, and takes hosts off the network, without anything but Python.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from typing import Final, Protocol

from stratagem.core import environment
from stratagem.core.clock import Deadline
from stratagem.testing import block_point

CLONE_NEWNS: Final = 0x20000
CLONE_NEWUTS: Final = 0x4000000
CLONE_NEWNET: Final = 0x40000000
MS_PRIVATE: Final = 1 << 18
MS_REC: Final = 1 << 14
MS_BIND: Final = 1 << 12
TUNSETIFF: Final = 0x400454CA
TUN_WITHOUT_HEADER: Final = 0x1001
"""IFF_TUN | IFF_NO_PI"""

DESTINATION: Final = slice(16, 20)
"""Where the address of its destination stands in a packet (RFC 791)."""

_LOSSES_SECONDS: Final = 60.0

SEPARATED: Final = "it has a network of its own"
_libc = ctypes.CDLL(None, use_errno=True)


def address_of(index: int) -> str:
    """Return the address of a host."""
    return f"10.77.0.{index + 1}"


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def separate(name: str, address: str, others: Mapping[str, str] | None = None) -> None:
    """Give the calling thread, and all that it starts, a network and a host name of its own; /etc/hosts knows it.

    Args:
        name: The host name.
        address: The address it will have.
        others: Addresses of further names.
    """
    _check(_libc.unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS))
    _check(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    socket.sethostname(name)
    with tempfile.NamedTemporaryFile("w") as hosts:  # without a name it lives as long as it is mounted
        hosts.write(f"127.0.0.1 localhost\n{address} {name}\n")
        hosts.writelines(f"{there} {other}\n" for other, there in (others or {}).items())
        hosts.flush()
        _check(_libc.mount(hosts.name.encode(), b"/etc/hosts", None, MS_BIND, None))


def be_a_host() -> None:
    """Let this worker be a host of its own. It calls this first; the test then calls `Network.connect`."""
    config = json.loads(os.environ[environment.TF_CONFIG])
    index = config["task"]["index"]
    addresses = config["cluster"]["worker"]
    ports = [address.rpartition(":")[2] for address in addresses]
    config["cluster"]["worker"] = [f"{address_of(other)}:{port}" for other, port in enumerate(ports)]
    os.environ[environment.TF_CONFIG] = json.dumps(config)
    separate(f"host-{index}", address_of(index))
    block_point(SEPARATED)


def why_there_are_none() -> str:
    """Return why such hosts cannot be made here; "" where they can."""
    command = ["unshare", "--net", "--uts", "--mount", "ip", "tuntap", "add", "dev", "sg", "mode", "tun"]
    if missing := [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]:
        return f"there is no {', '.join(missing)}"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"hosts with networks of their own are not permitted: {done.stderr.strip()}" if done.returncode else ""


def _open_tun(name: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), TUN_WITHOUT_HEADER))
    except OSError:
        os.close(device)
        raise
    return device


class Host(Protocol):
    """A process with a network of its own: a `Worker` that has called `be_a_host`, or what behaves like one."""

    @property
    def index(self) -> int:
        """Its number, from which its address follows."""
        ...

    @property
    def pid(self) -> int:
        """Its process."""
        ...

    def wait_for_point(self, name: str) -> None:
        """Wait until it has come to a point."""

    def release(self, name: str) -> None:
        """Let it go on from there."""


class Network:
    """Carries packets from host to host in a thread, until the `with` block ends.

    Args:
        seed: Decides which packets are lost.
    """

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._devices: dict[bytes, int] = {}
        self._lost_share = 0.0
        self._over, self._end = os.pipe()
        self.carried = self.lost = 0
        self._thread = threading.Thread(target=self._carry)

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._end)
        if self._thread.is_alive():
            self._thread.join()
        for descriptor in (self._over, *self._devices.values()):
            os.close(descriptor)

    def connect(self, *workers: Host) -> None:
        """Connect hosts that have come to the point `SEPARATED`, and let them go on."""
        for worker in workers:
            worker.wait_for_point(SEPARATED)
            name, address = f"sg{os.getpid()}-{worker.index}", address_of(worker.index)
            self._devices[socket.inet_aton(address)] = _open_tun(name)
            subprocess.run(["ip", "link", "set", name, "netns", str(worker.pid)], check=True)
            inside = f"ip address add {address}/24 dev {name} && ip link set {name} up && ip link set lo up"
            subprocess.run(["nsenter", "-t", str(worker.pid), "-n", "sh", "-c", inside], check=True)
        self._thread.start()
        for worker in workers:
            worker.release(SEPARATED)

    def lose(self, share: float) -> None:
        """Lose a share of the packets from now on, from 0 (none) to 1 (all: a partition)."""
        self._lost_share = share

    def wait_for_losses(self, count: int) -> None:
        """Wait until so many packets more were lost: an outage lasts as long as the hosts take to send them."""
        until, deadline = self.lost + count, Deadline(_LOSSES_SECONDS)
        while self.lost < until:
            if deadline.expired:
                raise TimeoutError(f"{until - self.lost} of {count} packets were not sent, or not lost")
            deadline.clock.wait(0.01)

    def _carry(self) -> None:
        devices = list(self._devices.values())
        while True:
            ready = select.select([self._over, *devices], [], [])[0]
            if self._over in ready:
                return
            for device in ready:
                self._pass_on(device)

    def _pass_on(self, device: int) -> None:
        try:
            packet = os.read(device, 65536)
            receiver = self._devices.get(packet[DESTINATION])
            if receiver is None or self._random.random() < self._lost_share:
                self.lost += 1
                return
            os.write(receiver, packet)
            self.carried += 1
        except OSError:  # its host has ended, or cannot keep up
            self.lost += 1
