"""CURVE key pairs, which identify the chief of a run, its parameter servers and each of its workers.

`stratagem run` makes the keys of a run and gives each task, in its environment, its own secret and the public keys of
all. So a task knows for every connection who is at the other end: a worker cannot pretend to be the chief or another
worker. Tasks that are started in another way make the keys of all from the secret of the cluster: they keep strangers
out, but not each other. (CurveZMQ: https://rfc.zeromq.org/spec/26/)
"""

from __future__ import annotations

import enum
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import zmq
from zmq.utils import z85

from stratagem.core import environment
from stratagem.core.errors import ClusterError

_PURPOSE: Final = "CURVE key of"
"""Keeps what is made of a secret here apart from what else is made of it (RFC 5869, section 3.2)."""


class Role(enum.StrEnum):
    """The role of a task for the others."""

    CHIEF = "chief"
    WORKER = "worker"
    PS = "ps"


@dataclass(frozen=True)
class Keys:
    """The keys of one task.

    Args:
        holder: Who the task is: "chief", "ps", or a worker, such as "worker 0".
        secret: Its secret key, 40 characters (Z85).
        public: The public keys of all, by holder.

    Example:
        >>> keys = make_keys(workers=2)
        >>> keys["chief"].public == keys["worker 1"].public
        True
        >>> Keys.from_text(keys["ps"].as_text()) == keys["ps"]
        True
    """

    holder: str
    secret: bytes = field(repr=False)
    public: Mapping[str, bytes]

    def holder_of(self, public_key: bytes) -> str | None:
        """Return whose key this is, as ZeroMQ reports it (32 bytes); None for a stranger's."""
        text = z85.encode(public_key)
        return next((holder for holder, key in self.public.items() if key == text), None)

    def as_text(self) -> str:
        """Return the text for the environment of a task."""
        public = {holder: key.decode() for holder, key in self.public.items()}
        return json.dumps({"holder": self.holder, "secret": self.secret.decode(), "public": public})

    @classmethod
    def from_text(cls, text: str) -> Keys:
        """Read keys from the environment.

        Raises:
            ClusterError: They are incomplete, or are not keys.
        """
        try:
            parts = json.loads(text)
            keys = cls(
                parts["holder"],
                parts["secret"].encode(),
                {holder: key.encode() for holder, key in parts["public"].items()},
            )
            if keys.public[keys.holder] != zmq.curve_public(keys.secret) or set(map(role_of, keys.public)) != set(Role):
                raise ValueError("the keys do not belong together")
        except (ValueError, KeyError, TypeError, AttributeError, zmq.ZMQError) as error:
            raise ClusterError(
                f"{environment.KEYS} cannot be used: {type(error).__name__}: {error}.",
                f"Start the tasks with `stratagem run`. Or unset it, and set {environment.SECRET_FILE} in each task.",
            ) from None
        return keys


def role_of(holder: str) -> Role:
    """Return the role of the holder of a key.

    Example:
        >>> role_of("worker 3") is Role.WORKER
        True
    """
    return Role(holder.partition(" ")[0])


def holder_for(role: str, index: int) -> str:
    """Return the holder of the key of a task: each worker has its own.

    Example:
        >>> holder_for("worker", 3), holder_for("ps", 3)
        ('worker 3', 'ps')
    """
    return f"{role} {index}" if role == Role.WORKER else str(role)


def make_keys(workers: int, seed: bytes | None = None) -> dict[str, Keys]:
    """Return the keys for a run, by holder.

    Args:
        workers: Number of workers.
        seed: A secret. Everyone who knows it makes the same keys. None makes new ones.

    Example:
        >>> make_keys(1, b"a secret")["ps"] == make_keys(1, b"a secret")["ps"]
        True
    """
    seed = secrets.token_bytes(32) if seed is None else seed
    holders = [str(Role.CHIEF), str(Role.PS), *(holder_for(Role.WORKER, index) for index in range(workers))]
    secret = {holder: z85.encode(hmac.digest(seed, f"{_PURPOSE} {holder}".encode(), "sha256")) for holder in holders}
    public = {holder: zmq.curve_public(key) for holder, key in secret.items()}
    return {holder: Keys(holder, key, public) for holder, key in secret.items()}


def keys_of_environment(environ: Mapping[str, str]) -> Keys | None:
    """Return the keys that the launcher gave this task, or None.

    Raises:
        ClusterError: They cannot be used.
    """
    text = environ.get(environment.KEYS)
    return Keys.from_text(text) if text else None
