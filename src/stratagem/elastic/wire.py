"""Messages between the coordinator and its members, as lines: bounded, counted, and each with a proof of the secret."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar

from stratagem.cluster.secret import Handshake, read_object
from stratagem.elastic.events import (
    Beat,
    Begun,
    Closed,
    End,
    Failed,
    Finished,
    Form,
    Formed,
    Go,
    Leaving,
    Order,
    Prepare,
    Prepared,
    Report,
    Stop,
    StopAfter,
    Stopped,
)
from stratagem.elastic.world import World

VERSION: Final = 1
"""Version of these messages. Both sides must have the same."""

MAX_LINE: Final = 4 * 1024 * 1024
"""Longest message in bytes; a world of a thousand members has 60,000."""

_REPORTS: Final[Mapping[str, type[Report]]] = {
    "beat": Beat,
    "prepared": Prepared,
    "begun": Begun,
    "stopped": Stopped,
    "formed": Formed,
    "finished": Finished,
    "closed": Closed,
    "leaving": Leaving,
    "failed": Failed,
}
_ORDERS: Final[Mapping[str, type[Order]]] = {
    "prepare": Prepare,
    "stop": Stop,
    "stop after": StopAfter,
    "form": Form,
    "go": Go,
    "end": End,
}
_SAID_OTHERWISE: Final = ("number", "to")
"""Fields that the connection stands for."""

Side = Literal["member", "coordinator"]


class Wire:
    """One end of a connection between a member and the coordinator, once both have proved that they know the secret.

    The proof of a message counts the messages of its side, so none can be changed, left out or said again.

    Args:
        handshake: What both sides have proved.
        side: Whose end it is.
        unread: What was read beyond the last line.
    """

    def __init__(self, handshake: Handshake, side: Side, unread: bytes = b"") -> None:
        self._handshake = handshake
        self._side = side
        self._other: Side = "coordinator" if side == "member" else "member"
        self._unread = unread
        self._sent = 0
        self._received = 0

    def seal(self, message: Mapping[str, Any]) -> bytes:
        """Return a message as a line. Lines must be sent in the order in which they were sealed."""
        self._sent += 1
        return self._handshake.seal(f"{self._side} {self._sent}", json.dumps(message))

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the messages that have come to their end.

        Args:
            data: What was received.

        Raises:
            ValueError: It is no message of the other side, or too long.
        """
        *lines, self._unread = (self._unread + data).split(b"\n")
        if len(self._unread) > MAX_LINE:
            raise ValueError(f"{len(self._unread)} bytes without the end of a line")
        messages = []
        for line in lines:
            self._received += 1
            body = self._handshake.open(f"{self._other} {self._received}", line)
            messages.append(read_object(body.encode("utf-8", "surrogatepass")))
        return messages


def write_report(report: Report) -> dict[str, Any]:
    """Return a report as a message."""
    return _write(report, "report", next(name for name, kind in _REPORTS.items() if kind is type(report)))


def read_report(message: Mapping[str, Any], number: int) -> Report:
    """Return the report in a message; `ValueError` when it is none.

    Args:
        message: The message.
        number: The member that has sent it.
    """
    return _read(message, "report", _REPORTS, {"number": number})


def write_order(order: Order) -> dict[str, Any]:
    """Return an order as a message."""
    return _write(order, "order", next(name for name, kind in _ORDERS.items() if kind is type(order)))


def read_order(message: Mapping[str, Any], number: int) -> Order:
    """Return the order in a message; `ValueError` when it is none.

    Args:
        message: The message.
        number: The member that has received it.
    """
    return _read(message, "order", _ORDERS, {"to": (number,)})


def _write(value: Report | Order, what: str, name: str) -> dict[str, Any]:
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    told = {key: field for key, field in fields.items() if key not in _SAID_OTHERWISE}
    return {what: name, **{key: field.encode() if isinstance(field, World) else field for key, field in told.items()}}


T = TypeVar("T", bound=Report | Order)


def _read(message: Mapping[str, Any], what: str, kinds: Mapping[str, type[T]], own: Mapping[str, Any]) -> T:
    kind = kinds.get(message[what]) if isinstance(message.get(what), str) else None
    if kind is None:
        raise ValueError(f"{message.get(what)!r} is no {what}")
    fields = {field.name: field.type for field in dataclasses.fields(kind) if field.name not in own}
    if message.keys() != {what, *fields}:
        raise ValueError(f"{what} {message[what]!r} has the fields {sorted(message)}")
    return kind(**own, **{key: _read_field(str(expected), message[key]) for key, expected in fields.items()})


def _read_field(expected: str, field: Any) -> Any:
    """Return a field of a message, which has the type that its class names."""
    if expected == "World":
        return World.decode(field)
    is_float = expected == "float" and type(field) in (int, float)
    if not is_float and type(field).__name__ != expected:
        raise ValueError(f"{field!r} is no {expected}")
    if not isinstance(field, str) and field < 0:
        raise ValueError(f"{field!r} is below zero")
    return field
