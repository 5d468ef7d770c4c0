"""Folders of images (`keras.utils.image_dataset_from_directory`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from stratagem.core import optional
from stratagem.core.errors import InputError
from stratagem.data import check
from stratagem.data.files.decode import MODES
from stratagem.data.files.folders import Folder, LabelMode, Subset
from stratagem.data.files.resize import INTERPOLATIONS, resize
from stratagem.data.specs import TensorSpec

_EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
_CHANNELS = {"grayscale": 1, "rgb": 3, "rgba": 4}
_GREY_MODES = ("L", "I;16", "I")


def image_dataset_from_directory(
    directory: str | bytes | os.PathLike[str],
    labels: Any = "inferred",
    label_mode: LabelMode | None = "int",
    class_names: Sequence[str] | None = None,
    color_mode: Literal["grayscale", "rgb", "rgba"] = "rgb",
    batch_size: int | None = 32,
    image_size: int | Sequence[int] = (256, 256),
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: Subset | None = None,
    interpolation: str = "bilinear",
    follow_links: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    data_format: Literal["channels_last", "channels_first"] | None = None,
    verbose: bool = True,
) -> Any:
    """Make a dataset of the images below a folder (`keras.utils.image_dataset_from_directory`).

    Files, classes, labels, split and pixels are those of Keras. So is the order in `file_paths` if you give a seed.
    Unlike in Keras, a shuffle moves the names of all files, and each iteration has a new order. A worker reads and
    decodes only the images of its rows, on its cores.

    Args:
        directory: Folder with a subfolder for each class, which contains `.bmp`, `.gif` (the first frame), `.jpeg`,
            `.jpg` and `.png` files at any depth.
        labels: "inferred" takes them from the subfolders; None means no labels; or a list of integers, one for each
            file in `directory`, sorted folder by folder.
        label_mode: "int": int32 of shape (batch,); "categorical": float32 of shape (batch, classes); "binary":
            float32 of shape (batch, 1); None for no labels.
        class_names: The subfolders to read, in the order of their labels; None reads all in sorted order.
        color_mode: "grayscale", "rgb" or "rgba".
        batch_size: Images in a global batch; None yields single images.
        image_size: (height, width) of the images after resizing.
        shuffle: Whether the images come in random order. Otherwise they come sorted.
        seed: Makes the order, and the split of shuffled files, reproducible.
        validation_split: Part of the files to keep for validation, between 0 and 1.
        subset: The part to return: "training", "validation", or "both".
        interpolation: "bilinear", "nearest", "bicubic", "lanczos3" or "lanczos5".
        follow_links: Whether to follow links to folders.
        crop_to_aspect_ratio: Whether to crop images, rather than distort them.
        pad_to_aspect_ratio: Whether to pad images with zeros, rather than distort them.
        data_format: "channels_last" or "channels_first"; None takes Keras's setting.
        verbose: Whether to print the number of files.

    Returns:
        A dataset of images, float32 of shape (batch, height, width, channels) with values from 0 to 255, or of pairs
        (images, labels). It has the attributes `class_names` and `file_paths`. With `subset="both"`, two datasets:
        training and validation.

    Raises:
        InputError: An argument is wrong, there is no image, or pillow is not installed. While reading: an image is
            damaged. It is not skipped, because positions and labels are fixed before images are read; remove the file.

    Example:
        >>> import tempfile, pathlib, PIL.Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("cat", "dog"):
        ...         pathlib.Path(folder, name).mkdir()
        ...         PIL.Image.new("RGB", (20, 10)).save(f"{folder}/{name}/1.png")
        ...     dataset = image_dataset_from_directory(folder, image_size=(8, 8), verbose=False)
        ...     images, labels = next(dataset.as_numpy_iterator())
        >>> dataset.class_names, images.shape, sorted(labels.tolist())
        (['cat', 'dog'], (2, 8, 8, 3), [0, 1])
    """
    optional.load("PIL", "files", "image_dataset_from_directory")
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    check.one_of("color_mode", color_mode, _CHANNELS)
    check.one_of("interpolation", interpolation.lower(), INTERPOLATIONS)
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise InputError("crop_to_aspect_ratio and pad_to_aspect_ratio are both True.", "Set one of them.")
    remedy = "Write image_size=(height, width) in pixels, such as (256, 256)."
    load = _Images(
        size=(check.integer("height", height, 1, remedy), check.integer("width", width, 1, remedy)),
        channels=_CHANNELS[color_mode],
        interpolation=interpolation.lower(),
        fit="crop" if crop_to_aspect_ratio else "pad" if pad_to_aspect_ratio else "distort",
        channels_first=_is_channels_first(data_format),
    )
    order = batch_size, shuffle, seed, validation_split, subset, follow_links, verbose
    return Folder(directory, _EXTENSIONS, labels, label_mode, class_names, *order).datasets(load, load.spec)


def _is_channels_first(data_format: str | None) -> bool:
    if data_format is None:
        # A process that only reads data need not load Keras for its setting.
        keras = sys.modules.get("keras")
        data_format = keras.config.image_data_format() if keras else "channels_last"
    check.one_of("data_format", data_format, ("channels_last", "channels_first"))
    return data_format == "channels_first"


@dataclass(frozen=True)
class _Images:
    """Reads an image and brings it to one size.

    Args:
        size: (height, width).
        channels: 1, 3 or 4.
        interpolation: See `resize`.
        fit: What becomes of images of another aspect ratio.
        channels_first: Whether the channels are the first axis of an image.
    """

    size: tuple[int, int]
    channels: int
    interpolation: str
    fit: Literal["crop", "pad", "distort"]
    channels_first: bool

    @property
    def spec(self) -> TensorSpec:
        shape = (self.channels, *self.size) if self.channels_first else (*self.size, self.channels)
        return TensorSpec(shape, np.float32)

    def __call__(self, path: str) -> np.ndarray:
        pixels = self._pixels(path)
        if self.fit == "crop":
            pixels = _cropped(pixels, self.size)
        elif self.fit == "pad":
            pixels = _padded(pixels, self.size)
        image = resize(pixels, self.size, self.interpolation)
        return image.transpose(2, 0, 1) if self.channels_first else image

    def _pixels(self, path: str) -> np.ndarray:
        pillow = optional.load("PIL.Image", "files", "image_dataset_from_directory")
        try:
            with pillow.open(path) as image:
                grey = self.channels == 1 and image.mode in _GREY_MODES
                pixels = np.array(image if grey else image.convert(MODES[self.channels]))
        except (OSError, SyntaxError, ValueError, EOFError, pillow.DecompressionBombError) as error:
            raise InputError(
                f"The image {path} cannot be read: {error}.", "Write the file again or remove it, on every worker."
            ) from None
        return pixels[..., None] if pixels.ndim == 2 else pixels


def _cropped(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the largest part in the middle with the aspect ratio of `size`."""
    height, width = image.shape[:2]
    crop_height = max(min(height, int(width * size[0] / size[1])), 1)
    crop_width = max(min(width, int(height * size[1] / size[0])), 1)
    top, left = int((height - crop_height) / 2), int((width - crop_width) / 2)
    return image[top : top + crop_height, left : left + crop_width]


def _padded(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the image in the middle of zeros with the aspect ratio of `size`."""
    height, width = image.shape[:2]
    top = int((max(height, int(width * size[0] / size[1])) - height) / 2)
    left = int((max(width, int(height * size[1] / size[0])) - width) / 2)
    return np.pad(image, [(top, top), (0 if top else left,) * 2, (0, 0)])
