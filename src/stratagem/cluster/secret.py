"""Secret of a cluster: tasks that meet prove to each other that they know it, and never send it.

Each side of a connection chooses a number that was never used before (a nonce), and proves with HMAC-SHA256 over both
numbers and its message that it knows the secret (RFC 2104). So a recorded conversation proves nothing in another one.
Tasks without a secret prove the same with an empty one: then whoever reaches the port is taken at its word.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from stratagem.core import environment as env
from stratagem.core.errors import ClusterError

LEAST_LENGTH: Final = 16
"""Shorter secrets can be guessed by who records one meeting."""

_NONCE_BYTES: Final = 16


def make_secret() -> str:
    """Return a new secret, of 256 random bits."""
    return secrets.token_hex(32)


def make_nonce() -> str:
    """Return a number that is used once, in hexadecimal."""
    return secrets.token_hex(_NONCE_BYTES)


def read_secret(environ: Mapping[str, str] = os.environ) -> bytes:
    """Return the secret that the environment gives; empty where there is none.

    Args:
        environ: Variables of the process.

    Raises:
        ClusterError: The file cannot be read, or the secret is too short.

    Example:
        >>> read_secret({"STRATAGEM_SECRET": "correct horse battery staple"})
        b'correct horse battery staple'
    """
    secret, file = environ.get(env.SECRET, ""), environ.get(env.SECRET_FILE)
    if not secret and file:
        try:
            secret = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ClusterError(
                f"{env.SECRET_FILE}={file} cannot be read: {error}.",
                "Write one line of random text into it, the same on every host: openssl rand -hex 32",
            ) from None
    if (secret or file) and len(secret) < LEAST_LENGTH:
        raise ClusterError(
            f"The secret of the cluster has {len(secret)} characters.",
            f"A person who records one start of the cluster could guess it. At least {LEAST_LENGTH} are needed.",
            "Make a longer one for all tasks: openssl rand -hex 32",
        )
    return secret.encode()


class Handshake(NamedTuple):
    """The secret and the nonces of a connection on which two tasks meet.

    Args:
        secret: The secret of the cluster.
        client: The nonce of who connected.
        host: The nonce of who listened.

    Example:
        >>> handshake = Handshake(b"a secret that is long enough", "1f", "2e")
        >>> handshake.open("hello", handshake.seal("hello", "worker 1"))
        'worker 1'
    """

    secret: bytes
    client: str
    host: str

    def seal(self, role: str, body: str) -> bytes:
        """Return a message with its proof, as one line.

        Args:
            role: What the sender says with it; what is sealed for one role opens for no other.
            body: The message.
        """
        return json.dumps({"body": body, "proof": self._prove(role, body)}).encode() + b"\n"

    def open(self, role: str, line: bytes) -> str:
        """Return the message in a line.

        Args:
            role: What the sender should have said with it.
            line: What was received.

        Raises:
            ValueError: It is no such message, or its sender does not know the secret.
        """
        message = read_object(line)
        body, proof = message.get("body"), message.get("proof")
        if not isinstance(body, str) or not isinstance(proof, str):
            raise ValueError("a message without body or proof")
        if not hmac.compare_digest(proof.encode(), self._prove(role, body).encode()):
            raise UnprovenError("its sender does not know the secret of this cluster")
        return body

    def _prove(self, role: str, body: str) -> str:
        proof = hmac.new(self.secret, digestmod=hashlib.sha256)
        for part in (role, self.client, self.host, body):
            data = part.encode("utf-8", "surrogatepass")
            proof.update(len(data).to_bytes(8, "big") + data)
        return proof.hexdigest()


class UnprovenError(ValueError):
    """A message whose sender does not know the secret."""


def read_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object in a line.

    Args:
        line: What was received; strangers may send anything.

    Raises:
        ValueError: It is no JSON object, or one of numbers that are none (Infinity, NaN).
    """
    try:
        message = json.loads(line, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("a message of too many levels") from None
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")
    return message


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number")
