"""Folders of texts (`keras.utils.text_dataset_from_directory`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from stratagem.core.errors import InputError
from stratagem.data import check
from stratagem.data.files.byte_file import BYTES
from stratagem.data.files.folders import LabelMode, Selection, Subset, datasets_of, labelled_files


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
        directory: Has a subfolder for each class with its `.txt` files, at any depth.
        labels: "inferred" from the subfolders; None for no labels; or a list of integers, one for each file in
            `directory`, sorted folder by folder.
        label_mode: "int", "categorical" or "binary", as for `image_dataset_from_directory`; None for no labels.
        class_names: The subfolders to read, in the order of their labels; None reads all, sorted.
        batch_size: Texts in a global batch; None yields single texts.
        max_length: Bytes of a text to keep, from its beginning; None keeps all.
        shuffle: Whether the texts come in random order. Otherwise they come sorted.
        seed: Makes the order, and the split of shuffled files, reproducible.
        validation_split: Part of the files to keep for validation, between 0 and 1.
        subset: Which part to return: "training", "validation", or "both".
        follow_links: Whether to look into folders behind links.
        verbose: Whether to say how many files were found.

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
    selection = Selection(batch_size, shuffle, seed, validation_split, subset, verbose)
    files = labelled_files(directory, (".txt",), labels, label_mode, class_names, follow_links, selection)
    return datasets_of(files, partial(_read, max_length=max_length), BYTES, selection)


def _read(path: str, max_length: int | None) -> bytes:
    try:
        return Path(path).read_bytes()[:max_length]
    except OSError as error:
        raise InputError(
            f"The text {path} cannot be read: {error.strerror}.",
            "Check the rights of the file, or remove it, on every worker.",
        ) from None
