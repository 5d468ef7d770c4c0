"""Restoring saved values: at once into objects that are built, later into those that are not built yet."""

from __future__ import annotations

import base64
import functools
import json
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from stratagem.checkpoint import objects
from stratagem.checkpoint.compat import give
from stratagem.checkpoint.storage import Contents
from stratagem.core.errors import InputError, UnmatchedError, name_some
from stratagem.core.log import logger

COUNTER = "save_counter"
"""Part of every checkpoint; a file made by `write` and a program that uses `read` need not have it."""

_SHOWN = 5


def describe(nodes: list[objects.Node]) -> str:
    """Return a graph as JSON: for each node its name, its parts, and its value unless that is an array.

    Raises:
        InputError: The state of an iterator is not plain data.
    """
    return json.dumps({"nodes": [_describe(node) for node in nodes]})


def _describe(node: objects.Node) -> dict[str, Any]:
    description = {"name": node.name, "parts": node.parts, **_value(node.value)}
    try:
        json.dumps(description)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"get_state() of {node.name}, a {type(node.value).__name__}, returned a value that JSON cannot hold: "
            f"{error}.",
            "Return dictionaries, lists, strings, numbers, or bytes.",
        ) from error
    return description


def _value(value: Any) -> dict[str, Any]:
    if objects.is_variable(value):
        return {"array": True}
    if isinstance(value, objects.PlainValue):
        return {"value": value.get()}
    if not objects.is_leaf(value):
        return {}
    state = value.get_state()
    return {"bytes": base64.b64encode(state).decode()} if isinstance(state, bytes) else {"state": state}


@dataclass(frozen=True)
class _Pair:
    """An object of the program and the node that was saved of it."""

    value: Any
    node: int


class Restoration:
    """A checkpoint on its way into a program.

    An object that is not built yet gets its values when it is: Keras has no event for that, so `build` is wrapped on
    the instance (as Keras itself wraps it), and unwrapped once it has run.

    Args:
        contents: What the checkpoint holds.
        path: What programs call it, for messages.
        root: Where the program's graph begins.
    """

    def __init__(self, contents: Contents, path: str, root: objects.Holder) -> None:
        self.path = path
        self.root = root
        self.quiet = False
        self._contents: Contents | None = contents
        self._nodes: list[dict[str, Any]] = contents.metadata["nodes"]
        self._unused = {number for number, node in enumerate(self._nodes) if _is_saved(node)}
        self._restored: dict[Any, Any] = {}
        # The objects stand beside the numbers so that no new object gets the identity of one that is gone.
        self._claims: dict[Any, _Pair] = {}
        self._waiting: set[Any] = set()
        self._unbuilt = 0
        self._status_is_gone = False

    def restore(self, value: Any, node: int = 0) -> None:
        """Give an object and its parts their values, where they have not got them yet: all of them, or none.

        Args:
            value: The object.
            node: What was saved of it.

        Raises:
            InputError: A value does not fit; the message names it.
        """
        pairs = self._pairs(_Pair(value, node))
        leaves = [pair for pair in pairs if objects.is_leaf(pair.value)]
        self._check(leaves)
        # Setting the state of an iterator can still fail, so it comes first.
        for pair in sorted(leaves, key=lambda pair: objects.is_variable(pair.value)):
            self._apply(pair)
        for pair in pairs:
            if objects.is_unbuilt(pair.value) and objects.identity(pair.value) not in self._waiting:
                self._waiting.add(objects.identity(pair.value))
                self._restore_when_built(pair)
            elif isinstance(pair.value, objects.Holder):
                give = functools.partial(self._restore_attribute, weakref.ref(pair.value), pair.node)
                pair.value.wait_for(give if self._unused else None)
        if not self._unused:
            self._contents = None

    def _restore_attribute(self, holder: weakref.ref[Any], node: int, name: str) -> None:
        """Give what a holder has got after it was restored its value, the first that comes under that name.

        Args:
            holder: The holder.
            node: What was saved of it.
            name: The attribute, which was set, or whose list or dictionary has got an entry.
        """
        taken = {pair.node for pair in self._claims.values()} - self._unused
        saved = self._nodes[node]["parts"]
        for part, value in holder().checkpoint_parts().items():  # pyright: ignore[reportOptionalMemberAccess]
            is_it = part == name or part.startswith(f"{name}/")  # or in a list or dictionary that it is
            if is_it and part in saved:
                self._restore_newcomer(value, saved[part], taken)

    def _restore_newcomer(self, value: Any, node: int, taken: set[int]) -> None:
        """Give an object its value, unless one that came before has it; of a container, each entry."""
        if isinstance(value, list | Mapping):
            saved = self._nodes[node]["parts"]
            for part, entry in objects.parts_of(value, self._nodes[node]["name"]).items():
                if part in saved:
                    self._restore_newcomer(entry, saved[part], taken)
        elif node not in taken and not isinstance(value, objects.PlainValue):
            self.restore(value, node)

    def has(self, name: str) -> bool:
        """Whether the checkpoint has a part of this name."""
        return name in self._nodes[0]["parts"]

    def missing(self) -> list[str]:
        """Return the names of the program's values for which the checkpoint has none."""
        nodes = objects.graph_of(self.root)
        # Each Checkpoint within has a counter, which was not saved unless it stood in a Checkpoint then.
        counters = {node.parts.get(COUNTER) for node in nodes if isinstance(node.value, objects.Holder)}
        leaves = [node for number, node in enumerate(nodes) if objects.is_leaf(node.value) and number not in counters]
        return [node.name for node in leaves if objects.identity(node.value) not in self._restored]

    def unused(self) -> list[str]:
        """Return the names of the checkpoint's values that no object of the program took."""
        names = [self._nodes[number]["name"] for number in sorted(self._unused)]
        return [name for name in names if name.rpartition("/")[2] != COUNTER]

    def _pairs(self, start: _Pair) -> list[_Pair]:
        """Walk the program's objects and the saved ones in step."""
        pairs, seen, queue = [], set(), deque([start])
        while queue:
            pair = queue.popleft()
            key = objects.identity(pair.value)
            # An object that two saved ones claim (two layers were one, or were two) goes to the first.
            if key in seen or self._claims.setdefault(key, pair).node != pair.node:
                continue
            seen.add(key)
            if key not in self._restored:
                pairs.append(pair)
            saved = self._nodes[pair.node]
            for name, part in objects.parts_of(pair.value, saved["name"]).items():
                if name in saved["parts"]:
                    queue.append(_Pair(part, saved["parts"][name]))
        return [pair for pair in pairs if _fits(pair.value, self._nodes[pair.node])]

    def _check(self, leaves: Iterable[_Pair]) -> None:
        faults = []
        for pair in leaves:
            if not objects.is_variable(pair.value):
                continue
            variable, array = pair.value, self._array(pair.node)
            # JAX holds a variable of int64 as int32 unless it is told otherwise, and the file has what it held.
            dtypes = {str(variable.dtype), jax.dtypes.canonicalize_dtype(variable.dtype).name}
            if tuple(variable.shape) != array.shape or array.dtype.name not in dtypes:
                faults.append(
                    f"{self._nodes[pair.node]['name']} ({variable.path}) is {variable.dtype}{list(variable.shape)}, "
                    f"the checkpoint has {array.dtype.name}{list(array.shape)}"
                )
        if faults:
            raise InputError(
                f"{self.path!r} does not fit the program: {name_some(faults, _SHOWN)}.",
                "The objects are not those that were saved. None of them was changed.",
                "Make the objects as they were made when the checkpoint was saved, or leave those that "
                "differ out of the Checkpoint.",
            )

    def _apply(self, pair: _Pair) -> None:
        saved, value = self._nodes[pair.node], pair.value
        if objects.is_variable(value):
            give(value, self._array(pair.node))
        elif isinstance(value, objects.PlainValue):
            value.set(saved["value"])
        else:
            value.set_state(base64.b64decode(saved["bytes"]) if "bytes" in saved else saved["state"])
        self._restored[objects.identity(value)] = value
        self._unused.discard(pair.node)

    def _array(self, node: int) -> Any:
        assert self._contents is not None, "a node that is used up is not looked up again"
        return self._contents.arrays[self._nodes[node]["name"]]

    def _restore_when_built(self, pair: _Pair) -> None:
        owner, build = pair.value, pair.value.build
        self._unbuilt += 1

        @functools.wraps(build)
        def build_and_restore(*args: Any, **kwargs: Any) -> Any:
            owner.build = build
            try:
                result = build(*args, **kwargs)
            except BaseException:
                owner.build = build_and_restore
                raise
            self._unbuilt -= 1
            self.restore(owner, pair.node)
            if self._status_is_gone:
                self.warn_of_unused()
            return result

        owner.build = build_and_restore

    def warn_of_unused(self) -> None:
        """Say once what no object of the program took: when nobody can ask the status, and all objects are built."""
        self._status_is_gone = True
        if self.quiet or self._unbuilt or not (unused := self.unused()):
            return
        self.quiet = True
        logger.warning(
            "%r: no object of the program took %s. Call status.expect_partial() if this is intended.",
            self.path,
            name_some(unused, _SHOWN),
        )


class CheckpointLoadStatus:
    """The outcome of a restore (`tf.train.Checkpoint.restore` returns the same).

    Args:
        restoration: The checkpoint; None if there was none to restore.
    """

    def __init__(self, restoration: Restoration | None) -> None:
        self._restoration = restoration
        if restoration is not None:
            weakref.finalize(self, restoration.warn_of_unused)

    def assert_consumed(self) -> CheckpointLoadStatus:
        """Check that every value of the checkpoint was used, and that every value of the program was restored.

        Raises:
            UnmatchedError: Some values were not, for example because a model or optimizer is not built yet.
        """
        self.assert_existing_objects_matched()
        unused = self._checked().unused()
        if unused:
            raise UnmatchedError(
                f"{self._checked().path!r}: no object of the program took {name_some(unused, _SHOWN)}.",
                "Part of the saved state is lost, or belongs to objects that are not built yet.",
                "Build the model and the optimizer first, or write expect_partial() if that part is not needed.",
            )
        return self

    def assert_existing_objects_matched(self) -> CheckpointLoadStatus:
        """Check that every existing value of the program was restored.

        Raises:
            UnmatchedError: Some values were not.
        """
        missing = self._checked().missing()
        if missing:
            raise UnmatchedError(
                f"{self._checked().path!r} has nothing for {name_some(missing, _SHOWN)}.",
                "They keep their present values, so training does not continue from the saved state.",
                "Restore a checkpoint of the same objects, or leave these out of the Checkpoint.",
            )
        return self

    def found(self, name: str) -> bool:
        """Return whether something was saved under this name, at the top of the checkpoint."""
        return self._checked().has(name)

    def expect_partial(self) -> CheckpointLoadStatus:
        """Declare that the program does not need all of the checkpoint, so that nothing warns about the rest."""
        if self._restoration is not None:
            self._restoration.quiet = True
        return self

    def run_restore_ops(self, session: Any = None) -> None:
        """Do nothing, because values are restored at once, as in eager TensorFlow."""

    initialize_or_restore = run_restore_ops

    def _checked(self) -> Restoration:
        if self._restoration is None:
            raise UnmatchedError(
                "There was no checkpoint to restore: the path was None.",
                "The program continues with its initial values.",
                "Check that latest_checkpoint(folder) returned a path before asserting.",
            )
        return self._restoration


def _is_saved(node: dict[str, Any]) -> bool:
    return bool({"array", "value", "state", "bytes"} & node.keys())


def _fits(value: Any, saved: dict[str, Any]) -> bool:
    """Whether an object is of the kind that was saved."""
    if objects.is_variable(value):
        return "array" in saved
    if isinstance(value, objects.PlainValue):
        return "value" in saved
    if objects.is_leaf(value):
        return bool({"state", "bytes"} & saved.keys())
    return not _is_saved(saved)
