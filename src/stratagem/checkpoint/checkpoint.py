"""`Checkpoint`: the state of a program's objects, saved and restored into the same or other objects."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import keras

from stratagem.checkpoint import file_names, objects, restoration, storage
from stratagem.checkpoint.background import Background, failure_of, host_views
from stratagem.checkpoint.collective_io import contents_together, finish_together, take_turn
from stratagem.checkpoint.part import may_be_in_shards, part_of
from stratagem.checkpoint.restoration import CheckpointLoadStatus, Restoration
from stratagem.checkpoint.shard_files import load_whole
from stratagem.checkpoint.state_file import FolderState, read_state, write_state
from stratagem.cluster.bootstrap import current_peers
from stratagem.compression.residuals import is_in_parts
from stratagem.core.errors import InputError, UsageError
from stratagem.core.progress import as_saving
from stratagem.mesh.placing import make_whole
from stratagem.mesh.same_values import check_same_values
from stratagem.program.remote_values import lives_elsewhere
from stratagem.program.tracing import is_traced
from stratagem.replica.context import current_replica_context


@dataclass(frozen=True)
class CheckpointOptions:
    """Options for saving a checkpoint (`tf.train.CheckpointOptions`).

    Args:
        experimental_io_device: Accepted as in TensorFlow; the host always writes.
        experimental_enable_async_checkpoint: The old name of `enable_async`.
        enable_async: Copy the values at the call and write the file in the background. The next
            `save`, `write`, `restore`, `read` or `sync` raises the error if that fails.

    Example:
        >>> CheckpointOptions(enable_async=True).enable_async
        True
    """

    experimental_io_device: str | None = None
    experimental_enable_async_checkpoint: bool = False
    enable_async: bool = False

    @property
    def in_background(self) -> bool:
        """Whether the file is written in the background, under either name."""
        return self.enable_async or self.experimental_enable_async_checkpoint


class Checkpoint(objects.Holder):
    """Named objects whose state is saved and restored together (`tf.train.Checkpoint`).

    It can contain Keras models, layers, optimizers and metrics (built or not), variables, seed generators, iterators
    with `get_state` and `set_state`, dictionaries, lists and tuples of these, other Checkpoints, and numbers, strings
    and None as attributes or in dictionaries and lists. Objects are matched by their place in the program (attribute,
    index), not by Keras's generated names. Values are stored as plain arrays, so a checkpoint opens under any strategy,
    on any number of devices, or without a strategy.

    With several workers, all call `save` and `restore` at the same points. If all save to the same path, the chief
    writes one file, and the others return when it is complete. A worker that saves to a path of its own writes its own
    file. (TensorFlow's tutorials use a temporary folder there.) A worker that cannot see the file to restore gets it
    from the chief.

    If variables rest in shards (`shard=` of a strategy) and all workers see the folder, each worker writes its shards
    to a separate file. The chief's file names these files and is written last. Such a checkpoint opens on any number of
    workers, with or without shards.

    Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/train/Checkpoint

    Args:
        root: An object whose parts become parts of the checkpoint, in addition to the named ones.
        **named: The objects to save, by name. Each is also an attribute of the checkpoint.

    Example:
        >>> import tempfile
        >>> from stratagem import keras
        >>> from stratagem.train import Checkpoint
        >>> step = keras.Variable(3, dtype="int32", trainable=False)
        >>> path = Checkpoint(step=step).save(tempfile.mkdtemp() + "/ckpt")
        >>> path[-7:]
        '/ckpt-1'
        >>> step.assign(9) is not None
        True
        >>> status = Checkpoint(step=step).restore(path).assert_consumed()
        >>> int(step)
        3
    """

    def __init__(self, root: Any = None, **named: Any) -> None:
        if root is not None:
            _check_root(root)
        self._root = root
        for name, value in named.items():
            self._check_name(name)
            setattr(self, name, value)
        self.save_counter = keras.Variable(0, dtype="int32", trainable=False, name=restoration.COUNTER)
        self._background = Background()

    def save(self, file_prefix: str | os.PathLike[str], options: CheckpointOptions | None = None) -> str:
        """Save under the next number, and register the checkpoint as the newest of its folder.

        Args:
            file_prefix: Folder and beginning of the name, such as "folder/ckpt".
            options: Options for saving.

        Returns:
            The path to restore from: the prefix, "-" and `save_counter`, which counts from 1.

        Raises:
            CheckpointError: The file cannot be written, here or on another worker.
            InputError: An object cannot be saved.
            PeerError: A worker did not arrive.
            UsageError: Called inside `strategy.run`.
        """
        return self.save_numbered(os.fspath(file_prefix), int(self.save_counter) + 1, options, append_to_folder)

    def write(self, file_prefix: str | os.PathLike[str], options: CheckpointOptions | None = None) -> str:
        """Save to exactly this path, without a number, and without registering it.

        Args:
            file_prefix: The path of the checkpoint.
            options: Options for saving.

        Returns:
            The path, to give to `read`.

        Raises:
            CheckpointError: The file cannot be written, here or on another worker.
            InputError: An object cannot be saved.
            PeerError: A worker did not arrive.
            UsageError: Called inside `strategy.run`.
        """
        path = file_names.path_of(file_prefix)
        return self._commit(path, path, options, list_it=lambda path: None)

    def restore(
        self, save_path: str | os.PathLike[str] | None, options: CheckpointOptions | None = None
    ) -> CheckpointLoadStatus:
        """Give all objects the values they had when a checkpoint was saved.

        Objects that are not built yet get their values when they are built. Objects that become an attribute of a
        Checkpoint or a `tf.Module` later get their values then. If one value does not fit, no value is changed.

        Args:
            save_path: The result of `save` or `latest_checkpoint`. None restores nothing.
            options: Accepted as in TensorFlow.

        Returns:
            A status: `assert_consumed()`, `assert_existing_objects_matched()` or `expect_partial()`.

        Raises:
            CheckpointError: The checkpoint is missing or damaged.
            InputError: A shape or dtype does not fit; the message names the variables.
            PeerError: A worker did not arrive.
        """
        status, _ = self.restore_from_chief(save_path)
        return status

    def read(self, save_path: str | os.PathLike[str], options: CheckpointOptions | None = None) -> CheckpointLoadStatus:
        """Restore a checkpoint that `write` wrote; see `restore`.

        Args:
            save_path: The result of `write`.
            options: Accepted as in TensorFlow.
        """
        return self.restore(save_path, options)

    def sync(self) -> None:
        """Wait until all background saves are written. All workers must call it.

        Raises:
            CheckpointError: A file could not be written, here or on another worker.
        """
        finish_together(self._background.join())

    @as_saving
    def restore_from_chief(self, save_path: str | os.PathLike[str] | None) -> tuple[CheckpointLoadStatus, str | None]:
        """Restore, and return which checkpoint of the chief it was; other workers may not see it."""
        _refuse_inside_run("restore")
        self.sync()
        found = contents_together(None if save_path is None else file_names.path_of(save_path))
        if found is None:
            return CheckpointLoadStatus(None), None
        contents, path = found
        restored = Restoration(contents, path, self)
        _update_trained_models(objects.graph_of(self))
        restored.restore(self)
        return CheckpointLoadStatus(restored), path

    def save_numbered(
        self, prefix: str, number: int, options: CheckpointOptions | None, list_it: Callable[[str], None]
    ) -> str:
        """Save as `prefix-number`.

        Args:
            prefix: Folder and beginning of the name.
            number: The number.
            options: Options for saving.
            list_it: Function of the path that the writing worker calls when the file is complete.
        """
        before = int(self.save_counter)
        # The file says its own number, so that a restored program goes on with the next one.
        self.save_counter.assign(before + 1)
        try:
            return self._commit(prefix, f"{prefix}-{number}", options, list_it)
        except BaseException:
            self.save_counter.assign(before)
            raise

    def checkpoint_parts(self) -> dict[str, Any]:
        """Return the objects by name, those of the root among them."""
        root = {} if self._root is None else objects.parts_of(self._root, "")
        return {**root, **super().checkpoint_parts()}

    @as_saving
    def _commit(self, place: str, path: str, options: CheckpointOptions | None, list_it: Callable[[str], None]) -> str:
        """Write the file where it is this worker's turn, and list it."""
        _refuse_inside_run("save")
        # All workers look at their objects, so that an object that cannot be saved is an error on all of them.
        nodes = objects.graph_of(self)
        description = restoration.describe(nodes)
        variables = {node.name: node.value for node in nodes if objects.is_variable(node.value)}
        turn = take_turn(place, path, self._background.join(), in_shards=may_be_in_shards(variables))
        _update_trained_models(nodes)  # all workers are here: it may be collective
        check_same_values("when a checkpoint is saved", _values(_mirrored(nodes)), current_peers())

        def publish() -> None:
            storage.mark(turn.path)
            list_it(turn.path)

        failure, in_background = None, options is not None and options.in_background
        with part_of(turn, variables) as part:
            if not in_background:
                failure = failure_of(lambda: part.on_host(host_views).write(description, publish))
            elif not part.is_empty:
                copied = part.on_host(self._background.copies)
                self._background.start(lambda: copied.write(description, publish))
        if not in_background:
            finish_together(failure)
        return turn.path

    def _check_name(self, name: str) -> None:
        if name.startswith("_") or hasattr(type(self), name) or name == restoration.COUNTER:
            raise InputError(
                f"Checkpoint was given an object under the name {name!r}.",
                "The name is reserved: it begins with an underscore, or is the name of a method of Checkpoint.",
                "Choose another name.",
            )


def write_alone(root: Any, path: str) -> None:
    """Write the parts of an object to exactly this path, without the other workers.

    Args:
        root: A model or another object with parts, whole on this worker.
        path: What the checkpoint is called.

    Raises:
        CheckpointError: The file cannot be written.
        InputError: An object cannot be saved.
    """
    nodes = objects.graph_of(Checkpoint(root))
    storage.write(path, restoration.describe(nodes), host_views(_values(nodes)))


def read_alone(root: Any, path: str, *, optimizers: bool = True) -> CheckpointLoadStatus:
    """Give the parts of an object the values of a checkpoint, without the other workers.

    Args:
        root: As for `write_alone`, built or not.
        path: What the checkpoint is called.
        optimizers: Whether to its optimizers too.

    Raises:
        CheckpointError: The checkpoint is missing or damaged.
        InputError: A shape or dtype does not fit; the message names the variables.
    """
    holder = Checkpoint(root) if optimizers else _WithoutOptimizers(root)
    restored = Restoration(load_whole(path), path, holder)
    restored.restore(holder)
    return CheckpointLoadStatus(restored)


def _values(nodes: list[objects.Node]) -> dict[str, jax.Array]:
    """Return the values of a graph's variables by name."""
    values = {node.name: node.value.value for node in nodes if objects.is_variable(node.value)}
    for name, value in values.items():
        if is_traced(value):
            raise UsageError(
                f"Checkpoint.save was called while a function is being compiled: {name} has no value yet.",
                "Call save outside the compiled function.",
            )
    return values


def _mirrored(nodes: list[objects.Node]) -> list[objects.Node]:
    """Return what all replicas hold alike."""
    return [node for node in nodes if not (lives_elsewhere(node.value) or is_in_parts(node.value))]


class _WithoutOptimizers(Checkpoint):
    def checkpoint_parts(self) -> dict[str, Any]:
        parts = super().checkpoint_parts()
        return {name: part for name, part in parts.items() if not isinstance(part, keras.Optimizer)}


def append_to_folder(path: str) -> None:
    """Let `latest_checkpoint` of its folder find a checkpoint that was written."""
    folder = os.path.dirname(path) or "."
    state = read_state(folder)
    saved = {other: when for other, when in state.saved.items() if os.path.abspath(other) != os.path.abspath(path)}
    write_state(folder, FolderState({**saved, path: time.time()}, state.last_preserved))


def _update_trained_models(nodes: list[objects.Node]) -> None:
    """Fetch what a running `fit` holds of its model's state; Keras does the same when a callback names its model."""
    for node in nodes:
        if isinstance(node.value, keras.Model):
            node.value.jax_state_sync()
            make_whole(node.value)


def _check_root(root: Any) -> None:
    if not objects.can_be_saved(root) or objects.is_leaf(root):
        raise InputError(
            f"Checkpoint was given {str(root)[:80]!r} of type {type(root).__name__} as root.",
            "Name the objects to save: Checkpoint(model=model, optimizer=optimizer).",
        )


def _refuse_inside_run(what: str) -> None:
    if current_replica_context() is not None:
        raise UsageError(
            f"Checkpoint.{what} was called inside a function that strategy.run is running.",
            "Variables have no values there: the function is being compiled.",
            f"Call {what} outside, after strategy.run has returned.",
        )
