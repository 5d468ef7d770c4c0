"""Folders with one file for each example, in a subfolder for each class: the layout that Keras's utilities read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple

import numpy as np

from stratagem.core.cores import available_cores
from stratagem.core.errors import InputError
from stratagem.core.log import announce
from stratagem.data import check
from stratagem.data.dataset import Dataset
from stratagem.data.files.source import checked_paths
from stratagem.data.nodes import Node
from stratagem.data.options import Options
from stratagem.data.sources import Indexed
from stratagem.data.specs import TensorSpec
from stratagem.data.structure import Tree

LabelMode = Literal["int", "categorical", "binary"]
Subset = Literal["training", "validation", "both"]

Load = Callable[[str], Any]
"""Reads the example in a file. Raises InputError with the name of the file."""


class FolderDataset(Dataset):
    """A dataset of files in folders, with what Keras's utilities attach to theirs.

    Args:
        dataset: The elements.
        class_names: The classes, in the order of their labels; None without labels.
        file_paths: The files, in the order of the dataset before it is shuffled in each iteration.
    """

    def __init__(self, dataset: Dataset, class_names: list[str] | None, file_paths: list[str]) -> None:
        super().__init__(dataset._node, dataset.options())
        self.class_names = class_names
        self.file_paths = file_paths


class Labelled(NamedTuple):
    """Files and what they show.

    Args:
        paths: The files.
        labels: Shape (n,), int32; or None.
        class_names: What the labels stand for; or None.
    """

    paths: list[str]
    labels: np.ndarray | None
    class_names: list[str] | None

    def select(self, rows: slice | np.ndarray) -> Labelled:
        """Return some of the files, in this order."""
        paths = np.array(self.paths, object)[rows].tolist()
        return Labelled(paths, None if self.labels is None else self.labels[rows], self.class_names)


class LabelledFiles(Indexed):
    """One element for each file.

    Args:
        paths: The files.
        labels: One for each, as it goes into an element; or None.
        load: Reads a file.
        spec: What it returns.
    """

    def __init__(self, paths: Sequence[str], labels: np.ndarray | None, load: Load, spec: TensorSpec) -> None:
        self.paths = checked_paths(paths)
        self._parts = labels, load, spec
        super().__init__(_LabelledSource(self.paths, labels, load, spec))

    def of_files(self, paths: Sequence[str]) -> LabelledFiles:
        labels, load, spec = self._parts
        place = {path: k for k, path in enumerate(self.paths)}
        mine = None if labels is None else labels[[place[path] for path in paths]]
        return LabelledFiles(paths, mine, load, spec)


class _LabelledSource:
    in_memory = False

    def __init__(self, paths: tuple[str, ...], labels: np.ndarray | None, load: Load, spec: TensorSpec) -> None:
        self._paths = paths
        self._labels = labels
        self._load = load
        self._spec = spec

    def __len__(self) -> int:
        return len(self._paths)

    def take(self, index: np.ndarray) -> Tree:
        shape: Any = self._spec.shape
        files = np.empty((len(index), *shape), self._spec.dtype)

        def load(row: int) -> None:
            files[row] = self._load(self._paths[index[row]])

        threads = min(len(index), available_cores())
        if threads == 1:
            for row in range(len(index)):
                load(row)
        else:
            # Reading and decoding release Python's lock. A pool for each batch costs under 1 ms and leaves no thread.
            with ThreadPoolExecutor(threads, "stratagem-load") as pool:
                list(pool.map(load, range(len(index))))
        return files if self._labels is None else (files, self._labels[index])

    @property
    def spec(self) -> Tree:
        return (
            self._spec if self._labels is None else (self._spec, TensorSpec(self._labels.shape[1:], self._labels.dtype))
        )


def dataset_from_directory(
    directory: Any,
    extensions: tuple[str, ...],
    load: Load,
    spec: TensorSpec,
    *,
    labels: Any,
    label_mode: LabelMode | None,
    class_names: Sequence[str] | None,
    batch_size: int | None,
    shuffle: bool,
    seed: int | None,
    validation_split: float | None,
    subset: Subset | None,
    follow_links: bool,
    verbose: bool,
) -> Any:
    """Make the dataset, or the two, of the files in a folder; see `image_dataset_from_directory` for the arguments."""
    _check_split(validation_split, subset, shuffle, seed)
    if labels is None or label_mode is None:
        labels = label_mode = None
    files = _index(os.fsdecode(directory), labels, class_names, extensions, follow_links)
    encoded = None if label_mode is None else _encoded(files, label_mode)
    if verbose:
        classes = "" if files.class_names is None else f" belonging to {len(files.class_names)} classes"
        announce(f"found {len(files.paths)} files{classes} in {os.fspath(directory)}")
    if shuffle and seed is not None:
        # Keras's own order. Without a seed it has a random one, which differs from worker to worker: there the order
        # is left to `Dataset.shuffle`, whose seed the workers share.
        order = np.arange(len(files.paths))
        np.random.RandomState(seed).shuffle(order)
        files, encoded = files.select(order), None if encoded is None else encoded[order]

    def dataset(rows: slice, shuffled: bool) -> FolderDataset:
        part = files.select(rows)
        step: Node = LabelledFiles(part.paths, None if encoded is None else encoded[rows], load, spec)
        made = Dataset(step, Options())
        made = made.shuffle(len(part.paths), seed) if shuffled else made
        made = made if batch_size is None else made.batch(batch_size)
        return FolderDataset(made, part.class_names, part.paths)

    if validation_split is None or subset is None:
        return dataset(slice(None), shuffle)
    training, validation = _split(len(files.paths), validation_split, verbose)
    if subset == "both":
        return dataset(training, shuffle), dataset(validation, False)
    return dataset(training if subset == "training" else validation, shuffle)


def _index(
    directory: str, labels: Any, class_names: Sequence[str] | None, extensions: tuple[str, ...], follow_links: bool
) -> Labelled:
    """List the files, sorted within each class."""
    if not os.path.isdir(directory):
        raise InputError(
            f"{directory!r} is no folder; the present folder is {os.getcwd()}.", "Name a folder that every worker sees."
        )
    if isinstance(labels, str) and labels == "inferred":
        found = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir() and entry.name[0] != ".")
        names = found if class_names is None else list(class_names)
        if not set(names) <= set(found):
            raise InputError(
                f"class_names is {names}, the subfolders of {directory} are {found}.",
                "Write class_names with names of subfolders, all or some, or leave it out.",
            )
        of_class = [list(_files_below(os.path.join(directory, name), extensions, follow_links)) for name in names]
        paths = [path for part in of_class for path in part]
        numbers = np.repeat(np.arange(len(names), dtype=np.int32), [len(part) for part in of_class])
        files = Labelled(paths, numbers, names)
    else:
        if class_names is not None:
            raise InputError(
                f"class_names is {list(class_names)}, and labels is not 'inferred'.",
                "The names belong to subfolders, which are not looked at.",
                "Leave class_names out.",
            )
        files = _labelled_by_hand(
            list(_files_below(os.path.join(directory, ""), extensions, follow_links)), labels, directory
        )
    if not files.paths:
        raise InputError(
            f"There is no file in {directory} that ends in {', '.join(extensions)}"
            f"{'' if class_names is None and labels is None else ' and belongs to a class'}.",
            "Put the files of each class into a subfolder, or write labels=None for files without classes.",
        )
    return files


def _labelled_by_hand(paths: list[str], labels: Any, directory: str) -> Labelled:
    if labels is None:
        return Labelled(paths, None, None)
    if not isinstance(labels, list | tuple) or len(labels) != len(paths):
        found = f"a list of {len(labels)}" if isinstance(labels, list | tuple) else repr(labels)
        raise InputError(
            f"labels is {found}; there are {len(paths)} files in {directory}.",
            "Give a list with one integer for each file in the order of os.walk, sorted; or 'inferred', or None.",
        )
    return Labelled(paths, np.array(labels, np.int32), [str(label) for label in sorted(set(labels))])


def _files_below(folder: str, extensions: tuple[str, ...], follow_links: bool) -> Iterator[str]:
    for root, _, files in sorted(os.walk(folder, followlinks=follow_links), key=lambda found: found[0]):
        for name in sorted(files):
            if name.lower().endswith(extensions):
                yield os.path.join(root, name)


def _encoded(files: Labelled, mode: LabelMode) -> np.ndarray:
    """Return the labels as they go into an element."""
    labels, names = files.labels, files.class_names
    assert labels is not None
    assert names is not None
    if mode == "binary" and len(names) != 2:
        raise InputError(
            f"label_mode is 'binary', and there are {len(names)} classes: {', '.join(names)}.",
            "Write label_mode='int' or 'categorical', or class_names with two names.",
        )
    if mode == "categorical" and (labels.min() < 0 or labels.max() >= len(names)):
        raise InputError(
            f"label_mode is 'categorical', and the {len(names)} different labels go from {labels.min()} to "
            f"{labels.max()}.",
            f"Give labels from 0 to {len(names) - 1}.",
        )
    if mode == "binary":
        return labels.astype(np.float32)[:, None]
    if mode == "categorical":
        return np.eye(len(names), dtype=np.float32)[labels]
    return labels


def _check_split(validation_split: float | None, subset: Subset | None, shuffle: bool, seed: int | None) -> None:
    if seed is not None:
        check.integer("seed", seed, 0, "Write an integer, or None.")
    if not validation_split and subset is None:
        return
    if not validation_split or not 0 < validation_split < 1 or subset not in ("training", "validation", "both"):
        raise InputError(
            f"validation_split is {validation_split!r}, subset is {subset!r}.",
            "Write validation_split between 0 and 1, and subset='training', 'validation' or 'both'; or neither.",
        )
    if shuffle and seed is None:
        raise InputError(
            "validation_split is set and shuffle is True, without a seed.",
            "The training and the validation part, made by two calls, would overlap.",
            "Write the same seed in both calls.",
        )


def _split(count: int, validation_split: float, verbose: bool) -> tuple[slice, slice]:
    last = int(validation_split * count)
    if not last:
        raise InputError(f"validation_split is {validation_split}, of {count} files.", "Write a larger part.")
    if verbose:
        announce(f"using {count - last} files for training and {last} for validation")
    return slice(0, count - last), slice(count - last, count)
