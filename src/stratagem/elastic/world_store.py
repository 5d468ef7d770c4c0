"""The store and the barriers of a world, with the interface of JAX's coordination service."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from stratagem.elastic.client import Membership
from stratagem.elastic.world import World


class WorldClient:
    """What members of a world leave for one another, while it lasts (`cluster.compat.CoordinationClient`).

    `cluster.agreement.Peers` runs on it. Each call raises `WorldChangedError` at once when the world ends.

    Args:
        membership: The connection of this process.
        world: The world.
        error: What calls raise that were not answered in time, or cannot be. Where JAX is loaded, its
            `JaxRuntimeError`, which those who use its service expect; the message begins with the words of its codes.
    """

    def __init__(self, membership: Membership, world: World, error: Callable[[str], Exception] = TimeoutError) -> None:
        self._membership = membership
        self._world = world
        self._error = error

    def key_value_set_bytes(self, key: str, value: bytes, allow_overwrite: bool = False) -> None:
        """Set a key."""
        text = base64.b64encode(value).decode()
        self._ask({"for": "set", "key": key, "value": text, "replaces": allow_overwrite})

    def key_value_dir_get_bytes(self, key: str) -> list[tuple[str, bytes]]:
        """Return all keys below one that ends with "/", and their values."""
        return [(name, base64.b64decode(text)) for name, text in self._ask({"for": "list", "key": key})]

    def blocking_key_value_get_bytes(self, key: str, timeout_in_ms: int) -> bytes:
        """Return a value, waiting for it to be set."""
        return base64.b64decode(self._ask({"for": "get", "key": key}, timeout_in_ms))

    def key_value_delete(self, key: str) -> None:
        """Delete a key, which need not be there."""
        self._ask({"for": "delete", "key": key})

    def wait_at_barrier(self, barrier_id: str, timeout_in_ms: int) -> None:
        """Wait for all members."""
        self._ask({"for": "meet", "key": barrier_id}, timeout_in_ms)

    def meet(self, place: str, note: bytes, ranks: Sequence[int], timeout_in_ms: int) -> dict[int, bytes]:
        """Wait for members, and return the note of each by its rank. Either all of them hear all notes, or none.

        Args:
            place: The name of the barrier.
            note: What this member brings.
            ranks: Who meets.
            timeout_in_ms: How long to wait.
        """
        numbers = self._world.numbers
        asked = {"for": "meet", "key": place, "value": base64.b64encode(note).decode()}
        answer = self._ask({**asked, "of": [numbers[rank] for rank in ranks]}, timeout_in_ms)
        return {numbers.index(number): base64.b64decode(text) for number, text in answer}

    def _ask(self, message: dict[str, object], milliseconds: int = 0) -> Any:
        return self._membership.ask(self._world.number, message, milliseconds / 1000, self._error)
