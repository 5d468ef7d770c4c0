"""The file `checkpoint` in a folder: which checkpoints are there, oldest first, and when they were saved.

It is the file that TensorFlow keeps, a `CheckpointState` as text, so that people and scripts read it as they do there.
Paths are relative to the folder, so that the folder can be moved. It is written after the checkpoint it names: what it
names is whole.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/train/latest_checkpoint
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from stratagem.checkpoint import file_names, shard_files, storage
from stratagem.core.errors import CheckpointError, explain

NAME: Final = "checkpoint"
"""Name of the file, as in TensorFlow."""


_NEWEST: Final = "model_checkpoint_path"
EMPTY: Final = b'model_checkpoint_path: ""\n'
"""The file of a folder without checkpoints."""

_PATHS: Final = "all_model_checkpoint_paths"
_TIMES: Final = "all_model_checkpoint_timestamps"
_PRESERVED: Final = "last_preserved_timestamp"


@dataclass(frozen=True)
class FolderState:
    """The checkpoints of a folder.

    Args:
        saved: When each was saved, in seconds since 1970, by path; oldest first.
        last_preserved: When the last one was saved that is kept for good; None for none yet.
    """

    saved: Mapping[str, float] = field(default_factory=dict)
    last_preserved: float | None = None


def read_state(folder: str) -> FolderState:
    """Return the checkpoints that the folder's file lists; none if there is no file.

    If the file cannot be understood, a warning says so, and the checkpoints that lie in the folder are listed in the
    order of their numbers.

    Raises:
        CheckpointError: The file names something outside the folder.
    """
    try:
        state = _parsed(Path(folder, NAME).read_text(encoding="utf-8"), folder)
    except FileNotFoundError:
        return FolderState()
    except (OSError, ValueError, TypeError, RecursionError) as error:
        return _found(folder, f"cannot be understood ({error})")
    for path in state.saved:
        _check_inside(folder, path)
    return state


def write_state(folder: str, state: FolderState) -> None:
    """Write the folder's file.

    Args:
        folder: The folder.
        state: Its checkpoints; those whose file is gone are left out.

    Raises:
        CheckpointError: The file cannot be written.
    """
    saved = {path: time for path, time in state.saved.items() if file_names.file_of(path).exists()}
    names = [json.dumps(os.path.relpath(path, folder), ensure_ascii=False) for path in saved]
    lines = [f"{_NEWEST}: {name}" for name in names[-1:]] or [EMPTY.decode().strip()]
    lines += [f"{_PATHS}: {name}" for name in names]
    lines += [f"{_TIMES}: {time!r}" for time in saved.values()]
    lines += [] if state.last_preserved is None else [f"{_PRESERVED}: {state.last_preserved!r}"]
    with storage.replacing(Path(folder, NAME)) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())


def latest_checkpoint(checkpoint_dir: str | os.PathLike[str]) -> str | None:
    """Return the path of the newest complete checkpoint in a folder; None if there is none.

    If the newest checkpoint is damaged or missing, a warning names it, and the previous one is returned. Source of the
    semantics: https://www.tensorflow.org/api_docs/python/tf/train/latest_checkpoint

    Args:
        checkpoint_dir: The folder that checkpoints were saved to.

    Example:
        >>> import tempfile
        >>> latest_checkpoint(tempfile.mkdtemp()) is None
        True
    """
    for path in reversed(list(read_state(os.fspath(checkpoint_dir)).saved)):
        if is_loadable(path):
            return path
    return None


def is_loadable(path: str) -> bool:
    """Whether a checkpoint is there and whole; a warning names it where it is not."""
    fault = shard_files.fault_in(path)
    if fault is None:
        return True
    warnings.warn(
        explain(
            f"The checkpoint {path!r} {fault}.",
            "Work since the checkpoint before it is lost.",
            "Check the disk. The newest checkpoint that is not damaged is used instead.",
        ),
        stacklevel=3,
    )
    return False


def _parsed(text: str, folder: str) -> FolderState:
    """Return the checkpoints that a text lists.

    Raises:
        ValueError: It does not say which checkpoint is the newest.
    """
    said: dict[str, list[Any]] = {name: [] for name in (_NEWEST, _PATHS, _TIMES, _PRESERVED)}
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        if name in said:
            said[name].append(json.loads(value))
    if not any(said.values()):
        raise ValueError(f"it does not say {_NEWEST}")
    times = dict(zip(said[_PATHS], said[_TIMES], strict=False))
    names = [*(name for name in said[_PATHS] if name not in said[_NEWEST]), *filter(None, said[_NEWEST])]
    saved = {os.path.join(folder, str(name)): float(times.get(name, 0)) for name in names}  # times may be left out
    return FolderState(saved, float(said[_PRESERVED][-1]) if said[_PRESERVED] else None)


def _check_inside(folder: str, path: str) -> None:
    """Refuse a checkpoint of another folder: what is listed is deleted when it is old."""
    top = os.path.abspath(folder)
    if os.path.commonpath([top, os.path.abspath(path)]) != top:
        raise CheckpointError(
            f"{Path(folder, NAME)} names {os.path.relpath(path, folder)!r}, which lies outside the folder.",
            "Training would continue from it, and delete it when it is old.",
            "Correct the file. Or delete it, to use the checkpoints in the folder.",
        )


def _found(folder: str, fault: str) -> FolderState:
    warnings.warn(
        explain(
            f"{Path(folder, NAME)} {fault}.",
            "This file names the newest checkpoint.",
            "Nothing: the checkpoint with the highest number in the folder counts as the newest.",
        ),
        stacklevel=4,
    )
    return lying_in(folder)


def lying_in(folder: str, pattern: str = "*") -> FolderState:
    """Return the checkpoints that lie in a folder, whatever its file says, in the order of their numbers.

    Args:
        folder: The folder.
        pattern: Which of them, as of `glob`.
    """
    found = Path(folder).glob(f"{pattern}{file_names.SUFFIX}")
    whole = [file for file in found if file_names.owner_of_shard(file.name) is None]
    files = sorted(whole, key=lambda file: (number_of(file.name), file.name))
    return FolderState({os.path.join(folder, file_names.path_of(file.name)): file.lstat().st_mtime for file in files})


def number_of(name: str) -> int:
    """Return the number at the end of a checkpoint's file; -1 where it has none."""
    found = re.search(rf"-(\d+){re.escape(file_names.SUFFIX)}$", name)
    return int(found[1]) if found else -1
