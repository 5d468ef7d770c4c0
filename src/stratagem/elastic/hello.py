"""Hello of a process that joins, and who is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from stratagem.cluster.secret import read_object
from stratagem.core.errors import PeerError
from stratagem.elastic.wire import VERSION


@dataclass(frozen=True)
class JoinHello:
    """What a process says that joins.

    Args:
        host: Name of its machine.
        pid: Its process number there.
        address: Where other members reach it.
        is_spare: Whether it trains only when somebody is missing.
        versions: Version of each library that must be the same everywhere.
        protocol: Version of the messages.
    """

    host: str
    pid: int
    address: str
    is_spare: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    protocol: int = VERSION

    def encode(self) -> str:
        """Return the message as text."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> JoinHello:
        """Return the message in a text; `ValueError` when it is none."""
        message = read_object(text.encode("utf-8", "surrogatepass"))
        protocol = message.get("protocol")
        if type(protocol) is not int:
            raise ValueError("not a hello: no version of the protocol")
        if protocol != VERSION:  # of another version its number is all that is sure
            return cls("", 0, "", protocol=protocol)
        try:
            hello = cls(**message)
            named = [(type(key), type(value)) for key, value in hello.versions.items()]
        except (TypeError, AttributeError) as error:
            raise ValueError(f"not a hello: {error}") from None
        kinds = [type(each) for each in (hello.host, hello.pid, hello.address, hello.is_spare)]
        if kinds != [str, int, str, bool] or set(named) - {(str, str)}:
            raise ValueError("not a hello: a field is of another type")
        return hello


def check_joins(hello: JoinHello, versions: Mapping[str, str] | None) -> None:
    """Refuse a process that could not train with the others.

    Args:
        hello: What it says.
        versions: Those of the first that has joined; None where nobody has.

    Raises:
        PeerError: It runs other versions.
    """
    if hello.protocol != VERSION:
        raise PeerError(
            f"A process would join with messages of version {hello.protocol}; the coordinator has version {VERSION}.",
            "The process and the coordinator would not understand each other.",
            "Install the same version of Stratagem on every machine, and where the launcher runs.",
        )
    if versions is not None and dict(hello.versions) != dict(versions):
        raise PeerError(
            f"Process {hello.pid} of host {hello.host} runs {dict(hello.versions)}, the others run {dict(versions)}.",
            "They would compile different programs and wait for each other.",
            "Install the same versions on every machine.",
        )
