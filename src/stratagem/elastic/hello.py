"""Hello of a process that joins, and who is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from stratagem.cluster.secret import read_object
from stratagem.core.errors import PeerError
from stratagem.elastic.options import ElasticOptions
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
        options: The options of its program, as `ElasticOptions.encode` wrote them; None where it has none.
        protocol: Version of the messages.
    """

    host: str
    pid: int
    address: str
    is_spare: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[float | str | None] | None = None
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
        if hello.options is not None:
            try:
                ElasticOptions.decode(hello.options)
            except ValueError as error:
                raise ValueError(f"not a hello: {error}") from None
        return hello


@dataclass(frozen=True)
class LauncherHello:
    """Hello of the launcher of another machine, whose processes join by themselves.

    Args:
        launches_on: Name of its machine.
        least: The least number of workers that it was given.
        most: The number at the start.
        protocol: Version of the messages.
    """

    launches_on: str
    least: int
    most: int
    protocol: int = VERSION

    def encode(self) -> str:
        """Return the message as text."""
        return json.dumps(asdict(self))


def read_hello(text: str) -> JoinHello | LauncherHello:
    """Return the hello in a text; `ValueError` when it is none.

    Args:
        text: What was received.
    """
    message = read_object(text.encode("utf-8", "surrogatepass"))
    if "launches_on" not in message:
        return JoinHello.decode(text)
    kinds = {"launches_on": str, "least": int, "most": int, "protocol": int}
    if {name: type(field) for name, field in message.items()} != kinds:
        raise ValueError("not a hello of a launcher")
    return LauncherHello(**message)


def check_joins(hello: JoinHello, first: JoinHello | None) -> None:
    """Refuse a process that could not train with the others.

    Args:
        hello: What it says.
        first: What the first has said that has joined; None where nobody has.

    Raises:
        PeerError: It runs other versions, or asks for other options.
    """
    check_protocol(hello.protocol)
    if first is not None and dict(hello.versions) != dict(first.versions):
        raise PeerError(
            f"Process {hello.pid} of host {hello.host} runs {dict(hello.versions)}, the others run "
            f"{dict(first.versions)}.",
            "They would compile different programs and wait for each other.",
            "Install the same versions on every machine.",
        )
    if first is not None and hello.options != first.options:
        raise PeerError(
            f"The strategy of process {hello.pid} of host {hello.host} was made with elastic={_said(hello)}, that of "
            f"the others with elastic={_said(first)}.",
            "They would wait for different numbers of workers, or make different batches.",
            "Run the same program with the same arguments in every process.",
        )


def _said(hello: JoinHello) -> str:
    return "None" if hello.options is None else f"ElasticOptions({ElasticOptions.decode(hello.options)})"


def check_protocol(protocol: int) -> None:
    """Refuse a process that says other messages.

    Args:
        protocol: Their version.

    Raises:
        PeerError: It is another than that of the coordinator.
    """
    if protocol != VERSION:
        raise PeerError(
            f"A process would join with messages of version {protocol}; the coordinator has version {VERSION}.",
            "The process and the coordinator would not understand each other.",
            "Install the same version of Stratagem on every machine, and where the launcher runs.",
        )


def check_launches(hello: LauncherHello, least: int, wanted: int) -> None:
    """Refuse a launcher that was started for another run.

    Args:
        hello: What it says.
        least: The least number of workers of this run.
        wanted: The number at its start.

    Raises:
        PeerError: It says other messages, or was given other numbers.
    """
    check_protocol(hello.protocol)
    if (hello.least, hello.most) != (least, wanted):
        raise PeerError(
            f"The launcher on host {hello.launches_on} was started for {hello.least} to {hello.most} workers, that of "
            f"node 0 for {least} to {wanted}.",
            "They would wait for different numbers of workers.",
            "Give every node the same --workers, --nodes and --elastic.",
        )
