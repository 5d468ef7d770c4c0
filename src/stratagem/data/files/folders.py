"""Folders with one file for each example and a subfolder for each class, as Keras's utilities read them; of texts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from stratagem.core.cores import available_cores
from stratagem.core.errors import InputError
from stratagem.core.log import announce
from stratagem.data import check
from stratagem.data.dataset import Dataset
from stratagem.data.files.byte_file import BYTES
from stratagem.data.files.decode import read_file
from stratagem.data.files.source import checked_paths
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
        labels: One for each; or None.
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
        files: The files, with labels as they go into elements.
        load: Reads a file.
        content: The spec of what `load` returns.
    """

    def __init__(self, files: Labelled, load: Load, content: TensorSpec) -> None:
        self.paths = checked_paths(files.paths)
        self._files = _LabelledSource(files, load, content)
        super().__init__(self._files)

    def of_files(self, paths: Sequence[str]) -> LabelledFiles:
        files, load, content = self._files.files, self._files.load, self._files.content
        place = {path: k for k, path in enumerate(self.paths)}
        return LabelledFiles(files.select(np.array([place[path] for path in paths])), load, content)


@dataclass(frozen=True)
class _LabelledSource:
    files: Labelled
    load: Load
    content: TensorSpec
    in_memory = False

    def __len__(self) -> int:
        return len(self.files.paths)

    def take(self, index: np.ndarray) -> Tree:
        shape: Any = self.content.shape
        contents = np.empty((len(index), *shape), self.content.dtype)

        def load(row: int) -> None:
            contents[row] = self.load(self.files.paths[index[row]])

        threads = min(len(index), available_cores())
        if threads == 1:
            for row in range(len(index)):
                load(row)
        else:
            # Reading and decoding release Python's lock. A pool for each batch costs under 1 ms and leaves no thread.
            with ThreadPoolExecutor(threads, "stratagem-load") as pool:
                list(pool.map(load, range(len(index))))
        return contents if self.files.labels is None else (contents, self.files.labels[index])

    @property
    def spec(self) -> Tree:
        labels = self.files.labels
        return self.content if labels is None else (self.content, TensorSpec(labels.shape[1:], labels.dtype))


@dataclass(frozen=True)
class Folder:
    """A folder, and which of its files a dataset has, in which order; see `image_dataset_from_directory`."""

    directory: str | bytes | os.PathLike[str]
    extensions: tuple[str, ...]
    labels: Any
    label_mode: LabelMode | None
    class_names: Sequence[str] | None
    batch_size: int | None
    shuffle: bool
    seed: int | None
    validation_split: float | None
    subset: Subset | None
    follow_links: bool
    verbose: bool

    def datasets(self, load: Load, content: TensorSpec) -> Any:
        """Return the dataset of the files, or both where the training and the validation part are wanted.

        Args:
            load: Reads a file.
            content: The spec of what `load` returns.
        """
        self._check()
        files = self._encoded(self._found())
        if self.shuffle and self.seed is not None:
            # Keras's own order. Without a seed it has a random one, which differs from worker to worker: there the
            # order is left to `Dataset.shuffle`, whose seed the workers share.
            order = np.arange(len(files.paths))
            np.random.RandomState(self.seed).shuffle(order)
            files = files.select(order)

        def dataset(part: Labelled, shuffled: bool) -> FolderDataset:
            made = Dataset(LabelledFiles(part, load, content), Options())
            made = made.shuffle(len(part.paths), self.seed) if shuffled else made
            made = made if self.batch_size is None else made.batch(self.batch_size)
            return FolderDataset(made, part.class_names, part.paths)

        if not self.validation_split:
            return dataset(files, self.shuffle)
        first = len(files.paths) - int(self.validation_split * len(files.paths))
        training, validation = files.select(slice(first)), files.select(slice(first, None))
        if not validation.paths:
            found = f"validation_split is {self.validation_split}, of {first} files."
            raise InputError(found, "Write a larger part.")
        if self.verbose:
            announce(f"using {first} files for training and {len(validation.paths)} for validation")
        if self.subset == "both":
            return dataset(training, self.shuffle), dataset(validation, False)
        return dataset(training if self.subset == "training" else validation, self.shuffle)

    def _check(self) -> None:
        check.one_of("label_mode", self.label_mode, ("int", "categorical", "binary", None))
        if self.seed is not None:
            check.integer("seed", self.seed, 0, "Write an integer, or None.")
        if not self.validation_split and self.subset is None:
            return
        part = self.validation_split or 0
        if not 0 < part < 1 or self.subset not in ("training", "validation", "both"):
            raise InputError(
                f"validation_split is {self.validation_split!r}, subset is {self.subset!r}.",
                "Write validation_split between 0 and 1, and subset='training', 'validation' or 'both'; or neither.",
            )
        if self.shuffle and self.seed is None:
            raise InputError(
                "validation_split is set and shuffle is True, without a seed.",
                "Two calls make the training part and the validation part, and these parts would overlap.",
                "Write the same seed in both calls.",
            )

    def _found(self) -> Labelled:
        """Return the files, sorted within each class, with the numbers of their classes."""
        directory, names = os.fsdecode(self.directory), self.class_names
        labels = None if self.label_mode is None else self.labels
        if not os.path.isdir(directory):
            raise InputError(
                f"{directory!r} is not a folder; the current folder is {os.getcwd()}.",
                "Name a folder that every worker sees.",
            )
        if isinstance(labels, str) and labels == "inferred":
            found = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir() and entry.name[0] != ".")
            names = found if names is None else list(names)
            if not set(names) <= set(found):
                raise InputError(
                    f"class_names is {names}, but the subfolders of {directory} are {found}.",
                    "Write class_names with names of subfolders, all or some, or leave it out.",
                )
            of_class = [self._below(os.path.join(directory, name)) for name in names]
            numbers = np.repeat(np.arange(len(names), dtype=np.int32), [len(part) for part in of_class])
            files = Labelled([path for part in of_class for path in part], numbers, names)
        elif names is not None:
            raise InputError(
                f"class_names is {list(names)}, but labels is not 'inferred'.",
                "The names are those of subfolders, and these are used only with labels='inferred'.",
                "Leave class_names out.",
            )
        else:
            # The name ends as `os.path.join` with nothing behind ends it: `file_paths` are Keras's to the letter.
            files = _labelled_by_hand(self._below(os.path.join(directory, "")), labels, directory)
        if not files.paths:
            raise InputError(
                f"There is no file in {directory} that ends in {', '.join(self.extensions)}"
                f"{'' if names is None and labels is None else ' and belongs to a class'}.",
                "Put the files of each class into a subfolder, or write labels=None for files without classes.",
            )
        if self.verbose:
            classes = "" if files.class_names is None else f" belonging to {len(files.class_names)} classes"
            announce(f"found {len(files.paths)} files{classes} in {os.fspath(self.directory)}")
        return files

    def _below(self, folder: str) -> list[str]:
        walked = sorted(os.walk(folder, followlinks=self.follow_links), key=lambda found: found[0])
        return [
            os.path.join(root, name)
            for root, _, names in walked
            for name in sorted(names)
            if name.lower().endswith(self.extensions)
        ]

    def _encoded(self, files: Labelled) -> Labelled:
        """Return the files with labels as they go into an element."""
        labels, names, mode = files.labels, files.class_names, self.label_mode
        if labels is None or names is None or mode == "int":
            return files
        if mode == "binary":
            if len(names) != 2:
                raise InputError(
                    f"label_mode is 'binary', and there are {len(names)} classes: {', '.join(names)}.",
                    "Write label_mode='int' or 'categorical', or class_names with two names.",
                )
            return files._replace(labels=labels.astype(np.float32)[:, None])
        if labels.min() < 0 or labels.max() >= len(names):
            raise InputError(
                f"label_mode is 'categorical', and the {len(names)} different labels go from {labels.min()} to "
                f"{labels.max()}.",
                f"Give labels from 0 to {len(names) - 1}.",
            )
        return files._replace(labels=np.eye(len(names), dtype=np.float32)[labels])


def _labelled_by_hand(paths: list[str], labels: Any, directory: str) -> Labelled:
    if labels is None:
        return Labelled(paths, None, None)
    if not isinstance(labels, list | tuple) or len(labels) != len(paths):
        found = f"a list of {len(labels)}" if isinstance(labels, list | tuple) else repr(labels)
        raise InputError(
            f"labels is {found}; there are {len(paths)} files in {directory}.",
            "Give a list with one integer for each file, in the sorted order of os.walk; or 'inferred', or None.",
        )
    return Labelled(paths, np.array(labels, np.int32), [str(label) for label in sorted(set(labels))])


def text_dataset_from_directory(
    directory: str | bytes | os.PathLike[str],
    labels: Any = "inferred",
    label_mode: LabelMode | None = "int",
    class_names: Sequence[str] | None = None,
    batch_size: int | None = 32,
    max_length: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: Subset | None = None,
    follow_links: bool = False,
    verbose: bool = True,
) -> Any:
    """Make a dataset of the `.txt` files below a folder (`keras.utils.text_dataset_from_directory`).

    Args:
        directory: Folder with a subfolder for each class, which contains `.txt` files at any depth.
        labels: "inferred" takes them from the subfolders; None means no labels; or a list of integers, one for each
            file in `directory`, sorted folder by folder.
        label_mode: "int", "categorical" or "binary", as for `image_dataset_from_directory`; None for no labels.
        class_names: The subfolders to read, in the order of their labels; None reads all in sorted order.
        batch_size: Texts in a global batch; None yields single texts.
        max_length: Number of bytes of a text to keep, from its beginning; None keeps all.
        shuffle: Whether the texts come in random order. Otherwise they come sorted.
        seed: Makes the order, and the split of shuffled files, reproducible.
        validation_split: Part of the files to keep for validation, between 0 and 1.
        subset: The part to return: "training", "validation", or "both".
        follow_links: Whether to follow links to folders.
        verbose: Whether to print the number of files.

    Returns:
        A dataset of texts, as bytes, or of pairs (texts, labels), with `class_names` and `file_paths`. Two of them,
        training and validation, for `subset="both"`.

    Raises:
        InputError: An argument is wrong, or there is no text. While reading: a file cannot be read.

    Example:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name, text in (("neg", "bad"), ("pos", "good")):
        ...         pathlib.Path(folder, name).mkdir()
        ...         _ = pathlib.Path(folder, name, "1.txt").write_text(text)
        ...     dataset = text_dataset_from_directory(folder, shuffle=False, verbose=False)
        ...     next(dataset.as_numpy_iterator())
        (array([b'bad', b'good'], dtype=object), array([0, 1], dtype=int32))
    """
    if max_length is not None:
        check.integer("max_length", max_length, 1, "Write how many bytes of a text to keep, or None.")
    order = batch_size, shuffle, seed, validation_split, subset, follow_links, verbose
    folder = Folder(directory, (".txt",), labels, label_mode, class_names, *order)
    return folder.datasets(partial(_read, max_length=max_length), BYTES)


def _read(path: str, max_length: int | None) -> bytes:
    return read_file(path)[:max_length]
