"""Send garbage to a listening task: `python -m stratagem.transport.fuzz HOST:PORT --seconds 60`.

The bytes are random, greetings and frames of ZeroMQ's protocol with damage, and its true beginnings. A task that goes
on answering its own cluster passes; the tests do it for a second.
"""

from __future__ import annotations

import argparse
import random
import socket

from stratagem.core.clock import Deadline

_GREETINGS = (
    b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE".ljust(22, b"\0") + bytes(32),
    b"\xff" + bytes(8) + b"\x7f\x03\x00NULL".ljust(22, b"\0") + bytes(32),
    b"GET / HTTP/1.1\r\nHost: ps\r\n\r\n",
)
"""The first bytes of a ZeroMQ peer with keys, of one without, and of a web browser."""


def fuzz(address: str, seconds: float, seed: int = 0) -> int:
    """Open connections and send nonsense for a while; return how many were opened.

    Args:
        address: `host:port`.
        seconds: How long it lasts.
        seed: Seed of the random bytes.
    """
    rng = random.Random(seed)
    host, _, port = address.rpartition(":")
    deadline, count = Deadline(seconds), 0
    while not deadline.expired:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            count += 1
            connection.settimeout(0.02)
            try:
                for piece in nonsense(rng):
                    connection.sendall(piece)
                connection.recv(4096)
            except OSError:  # it hung up, or waits for more: both are right
                continue
    return count


def nonsense(rng: random.Random) -> list[bytes]:
    """Return the pieces of the bytes that a stranger sends on one connection."""
    greeting = bytearray(rng.choice((*_GREETINGS, b"")))
    for _ in range(rng.choice((0, 0, 1, 5))):
        if greeting:
            greeting[rng.randrange(len(greeting))] = rng.randrange(256)
    sizes = (0, 1, 8, 64, 300, 5000)
    # A command or message frame: flags, a length that may be a lie, and a body.
    frames = [
        bytes([rng.choice((0, 1, 2, 3, 4, 6, rng.randrange(256)))])
        + rng.choice((bytes([rng.randrange(256)]), rng.randbytes(8), b"\xff" * 8, b"\x05HELLO"))
        + rng.randbytes(rng.choice(sizes))
        for _ in range(rng.randrange(4))
    ]
    return [bytes(greeting), *frames]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(fuzz(arguments.address, arguments.seconds, arguments.seed), "connections")
