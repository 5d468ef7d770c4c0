"""Who is who: one CURVE key pair for each role of a run.

`stratagem run` makes the keys of a run and gives each task, in its environment, the secret of its own role and the
public keys of all. So a task knows of every connection which role is at the other end, and a worker cannot pass for the
chief. (CurveZMQ: https://rfc.zeromq.org/spec/26/)
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import zmq
from zmq.utils import z85

from stratagem.core import environment
from stratagem.core.errors import ClusterError, explain


class Role(enum.StrEnum):
    """What a task is to the others."""

    CHIEF = "chief"
    WORKER = "worker"
    PS = "ps"


@dataclass(frozen=True)
class Keys:
    """The keys of one task.

    Args:
        role: The role of the task.
        secret: The secret key of its role, 40 characters (Z85).
        public: The public keys of all roles.

    Example:
        >>> keys = make_keys()
        >>> keys[Role.CHIEF].public == keys[Role.WORKER].public
        True
        >>> Keys.from_text(keys[Role.PS].as_text()) == keys[Role.PS]
        True
    """

    role: Role
    secret: bytes = field(repr=False)
    public: Mapping[Role, bytes]

    def role_of(self, public_key: bytes) -> Role | None:
        """Return whose key this is, as ZeroMQ reports it (32 bytes); None for a stranger's."""
        text = z85.encode(public_key)
        return next((role for role, key in self.public.items() if key == text), None)

    def as_text(self) -> str:
        """Return what stands in the environment of a task."""
        public = {role.value: key.decode() for role, key in self.public.items()}
        return json.dumps({"role": self.role.value, "secret": self.secret.decode(), "public": public})

    @classmethod
    def from_text(cls, text: str) -> Keys:
        """Read keys from the environment.

        Raises:
            ClusterError: They are incomplete, or no keys.
        """
        try:
            parts = json.loads(text)
            keys = cls(
                Role(parts["role"]),
                parts["secret"].encode(),
                {Role(role): key.encode() for role, key in parts["public"].items()},
            )
            if keys.public[keys.role] != zmq.curve_public(keys.secret) or set(keys.public) != set(Role):
                raise ValueError("the keys do not belong together")
        except (ValueError, KeyError, TypeError, AttributeError, zmq.ZMQError) as error:
            raise ClusterError(
                explain(
                    f"{environment.KEYS} cannot be used: {type(error).__name__}: {error}.",
                    "This task could prove to nobody who it is.",
                    "Start the tasks by `stratagem run`, or give each the text that "
                    "stratagem.transport.keys.make_keys() makes for its role.",
                )
            ) from None
        return keys


def make_keys() -> dict[Role, Keys]:
    """Return new keys for a run, by role."""
    pairs = {role: zmq.curve_keypair() for role in Role}
    public = {role: pair[0] for role, pair in pairs.items()}
    return {role: Keys(role, pair[1], public) for role, pair in pairs.items()}


def keys_of_environment(environ: Mapping[str, str]) -> Keys | None:
    """Return the keys that the launcher gave this task, or None.

    Raises:
        ClusterError: They cannot be used.
    """
    text = environ.get(environment.KEYS)
    return Keys.from_text(text) if text else None
