"""Several hosts on one machine: network namespaces, whose cards carry so many bits a second (Linux, root, iproute2)."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stratagem.core import environment

PORT = 12345
"""Of the first worker on each host; on an address of its own each host can listen on the same ones."""

_BURST_SECONDS = 0.0005
"""What a card may send at once is what it carries in this time: more would be memory, not a network."""

_PACKET = 32_000
"""Bytes of a packet. Cards cut what the system sends into smaller ones, and put together what comes; here the cores of
the machine would do it, one packet after the other: they are as busy as with a training step at 1 Gbit/s."""

_PREFIX = "growth"


def address(host: int) -> str:
    """Return the address of a host, which is also its name."""
    return f"10.77.0.{host + 1}"


def possible() -> bool:
    """Whether this process may make network namespaces."""
    try:
        command = ["unshare", "--net", "--uts", "tc", "qdisc", "add", "dev", "lo", "root", *_limit(1e9)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def run_on_hosts(
    function: Callable[..., Any],
    hosts: int,
    args: Sequence[Any],
    bits_per_second: float,
    timeout_seconds: float,
    per_host: int = 1,
) -> list[Any]:
    """Run a function of a file in this folder as workers on several hosts.

    Args:
        function: At the top level of the file.
        hosts: How many.
        args: Its arguments.
        bits_per_second: What the card of each host carries, in each direction.
        timeout_seconds: How long all of it may take.
        per_host: Workers on each host.

    Returns:
        What each worker returned.
    """
    module = Path(sys.modules[function.__module__].__file__ or "").stem
    with _network(hosts, bits_per_second), tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "args").write_bytes(pickle.dumps(tuple(args)))
        processes = []
        places = [(host, PORT + local) for host in range(hosts) for local in range(per_host)]
        cluster = {"worker": [f"{address(host)}:{port}" for host, port in places]}
        for index, (host, _) in enumerate(places):
            config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
            variables = {**os.environ, environment.TF_CONFIG: json.dumps(config), environment.JAX_PLATFORMS: "cpu"}
            variables |= dict.fromkeys(environment.THREAD_COUNTS, "1")
            # Gloo listens on the address that the host's name has.
            start = ["sh", "-c", f'hostname {address(host)} && exec "$@"', "sh"]
            worker = [sys.executable, __file__, module, function.__name__, folder, str(index)]
            command = ["ip", "netns", "exec", f"{_PREFIX}{host}", "unshare", "--uts", *start, *worker]
            processes.append(subprocess.Popen(command, env=variables))
        try:
            for process in processes:
                if process.wait(timeout_seconds) != 0:
                    raise RuntimeError("a worker failed; its output is above")
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return [pickle.loads((Path(folder) / str(index)).read_bytes()) for index in range(len(places))]


@contextmanager
def _network(hosts: int, bits_per_second: float) -> Iterator[None]:
    """Make the hosts, their cards and the switch between them; and remove them."""
    bridge, large = f"{_PREFIX}-switch", ("mtu", str(_PACKET))
    try:
        _ip("link", "add", bridge, *large, "type", "bridge")
        _ip("link", "set", bridge, "up")
        for host in range(hosts):
            name, port = f"{_PREFIX}{host}", f"{_PREFIX}-port{host}"
            _ip("netns", "add", name)
            _ip("link", "add", port, *large, "type", "veth", "peer", "name", "eth0", *large, "netns", name)
            _ip("link", "set", port, "master", bridge, "up")
            inside = ["-n", name]
            _ip(*inside, "address", "add", f"{address(host)}/24", "dev", "eth0")
            _ip(*inside, "link", "set", "eth0", "up")
            _ip(*inside, "link", "set", "lo", "up")
            _in(name, "sysctl", "-q", "-w", "net.ipv4.tcp_congestion_control=reno")
            limit = ["root", *_limit(bits_per_second)]
            subprocess.run(["tc", *inside, "qdisc", "add", "dev", "eth0", *limit], check=True)
            subprocess.run(["tc", "qdisc", "add", "dev", port, *limit], check=True)
        yield
    finally:
        for host in range(hosts):
            # A namespace is removed some time later, and its cards with it: the next network would find them.
            subprocess.run(["ip", "link", "delete", f"{_PREFIX}-port{host}"], check=False)
            subprocess.run(["ip", "netns", "delete", f"{_PREFIX}{host}"], check=False)
        subprocess.run(["ip", "link", "delete", bridge], check=False)


def _limit(bits_per_second: float) -> list[str]:
    burst = max(1 << 16, round(bits_per_second / 8 * _BURST_SECONDS))
    return ["tbf", "rate", f"{round(bits_per_second)}bit", "burst", str(burst), "latency", "50ms"]


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def _in(name: str, *command: str) -> None:
    subprocess.run(["ip", "netns", "exec", name, *command], check=True)


def _work(module: str, function: str, folder: str, index: str) -> None:
    """Call the function as one worker, and leave what it returns."""
    found = getattr(__import__(module), function)
    args = pickle.loads((Path(folder) / "args").read_bytes())
    (Path(folder) / index).write_bytes(pickle.dumps(found(*args)))


if __name__ == "__main__":
    _work(*sys.argv[1:])
