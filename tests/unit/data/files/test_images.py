"""Folders of images and texts: files, classes, labels, split and pixels are those of Keras's own utilities."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import keras
import numpy as np
import PIL.Image
import pytest

from stratagem.core.errors import InputError
from stratagem.data import Dataset, TensorSpec, image_dataset_from_directory, text_dataset_from_directory
from stratagem.data.files.resize import INTERPOLATIONS, resize

draw = np.random.default_rng(0)


def save(path: Path, mode: str, size: tuple[int, int] = (14, 10)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = draw.integers(0, 256, (size[1], size[0], 4), np.uint8)
    if mode == "I;16":
        PIL.Image.fromarray(pixels.view(np.uint16)[..., 0]).save(path)
    else:
        PIL.Image.fromarray(pixels).convert("RGBA" if mode == "RGBA" else "RGB").convert(mode).save(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    save(root / "cat" / "b.png", "RGB")
    save(root / "cat" / "a.JPG", "RGB", (9, 16))
    save(root / "cat" / "more" / "1.png", "P")
    save(root / "ant" / "grey.png", "L")
    save(root / "ant" / "deep.png", "I;16")
    save(root / "ant" / "clear.png", "RGBA")
    save(root / "bee" / "x.bmp", "RGB", (9, 16))
    save(root / "bee" / "y.jpeg", "L")
    save(root / ".hidden" / "z.png", "RGB")
    (root / "bee" / "notes.txt").write_text("no image")
    (root / "loose.png").write_bytes((root / "cat" / "b.png").read_bytes())
    return root


def both(folder: Path, **arguments: Any) -> tuple[Any, Any]:
    theirs = keras.utils.image_dataset_from_directory(folder, format="grain", verbose=False, **arguments)
    return image_dataset_from_directory(folder, verbose=False, **arguments), theirs


def assert_same_elements(ours: Dataset, theirs: Any, atol: float = 2e-3) -> None:
    mine, expected = list(ours.as_numpy_iterator()), list(theirs)
    assert len(mine) == len(expected) > 0
    for element, other in zip(mine, expected, strict=True):
        pairs = [(element, other)] if isinstance(element, np.ndarray) else list(zip(element, other, strict=True))
        images, other_images = pairs[0]
        assert images.dtype == np.float32
        # Of 255 (65535 for 16 bits): JAX adds in another order.
        assert np.abs(images - np.asarray(other_images)).max() <= atol * max(1.0, float(images.max()) / 255)
        for labels, other_labels in pairs[1:]:
            assert labels.dtype == other_labels.dtype
            assert labels.tolist() == other_labels.tolist()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "arguments",
    [
        {"color_mode": "grayscale"},
        {"label_mode": "categorical", "class_names": ["cat", "ant"], "batch_size": 4},
        {"label_mode": "binary", "class_names": ["cat", "ant"], "crop_to_aspect_ratio": True},
        {"labels": None, "color_mode": "rgba", "pad_to_aspect_ratio": True},
        {"labels": [5, 5, 3, 5, 3, 3, 3, 4, 4, 4], "data_format": "channels_first", "batch_size": None},
    ],
)
def test_elements_are_those_of_keras(folder: Path, arguments: dict[str, Any]) -> None:
    ours, theirs = both(folder, shuffle=False, image_size=(12, 20), **arguments)
    assert ours.class_names == theirs.class_names
    assert ours.file_paths == theirs.file_paths
    assert_same_elements(ours, theirs)


def test_of_a_moving_image_the_first_frame_is_taken(tmp_path: Path) -> None:
    frames = [PIL.Image.new("L", (4, 4), color) for color in (10, 200)]
    frames[0].save(tmp_path / "x.gif", save_all=True, append_images=frames[1:])
    dataset = image_dataset_from_directory(tmp_path, labels=None, image_size=4, verbose=False)
    assert np.array_equal(next(dataset.as_numpy_iterator()), np.full((1, 4, 4, 3), 10))


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_pixels_are_those_of_keras_on_jax(interpolation: str) -> None:
    size = (7, 30)
    image = draw.integers(0, 256, (16, 12, 3), np.uint8)
    expected = np.asarray(keras.ops.image.resize(image.astype(np.float32), size, interpolation=interpolation))
    np.testing.assert_allclose(resize(image, size, interpolation), expected, atol=2e-3)


def test_order_and_split_with_a_seed_are_those_of_keras(folder: Path) -> None:
    arguments = {"seed": 3, "validation_split": 0.3, "image_size": (4, 4)}
    parts = [both(folder, subset=subset, **arguments) for subset in ("training", "validation")]
    assert [len(ours.file_paths) for ours, _ in parts] == [6, 2]
    for ours, theirs in parts:
        assert ours.file_paths == theirs.file_paths
    training, validation = image_dataset_from_directory(folder, subset="both", verbose=False, **arguments)
    assert training.file_paths == parts[0][1].file_paths
    assert validation.file_paths == parts[1][1].file_paths
    names = ["ant", "bee", "cat"]
    (_, labels), *_ = validation.as_numpy_iterator()
    assert [names[label] for label in labels] == [Path(path).parts[len(folder.parts)] for path in validation.file_paths]


def test_every_image_comes_with_its_label_in_an_order_of_each_iteration(folder: Path) -> None:
    plain = image_dataset_from_directory(folder, shuffle=False, image_size=(4, 4), batch_size=None, verbose=False)
    known = {image.tobytes(): int(label) for image, label in plain.as_numpy_iterator()}
    assert len(known) == 8
    for seed in (None, 5):
        shuffled = image_dataset_from_directory(folder, seed=seed, image_size=(4, 4), batch_size=3, verbose=False)
        assert len(shuffled) == 3
        orders = []
        for _ in range(3):
            rows = [pair for batch in shuffled.as_numpy_iterator() for pair in zip(*batch, strict=True)]
            assert {image.tobytes(): int(label) for image, label in rows} == known
            orders.append(tuple(image.tobytes() for image, _ in rows))
        assert len(set(orders)) > 1


def test_without_a_seed_the_strategy_can_give_all_workers_one_order(folder: Path) -> None:
    """Keras draws a list of files at random here, which no other worker knows."""
    first, second = (image_dataset_from_directory(folder, image_size=(4, 4), verbose=False) for _ in range(2))
    assert first.file_paths == second.file_paths
    assert first.random_seeds() != second.random_seeds()
    agreed = second.with_random_seeds(first.random_seeds())
    for a, b in zip(first.batches(iteration=0), agreed.batches(iteration=0), strict=True):
        assert np.array_equal(a.data[0], b.data[0])


def test_a_worker_reads_its_images_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = PIL.Image.open
    monkeypatch.setattr(PIL.Image, "open", lambda path: opened.append(Path(path).name) or real(path))
    dataset = image_dataset_from_directory(folder, image_size=(4, 4), shuffle=False, batch_size=4, verbose=False)
    dataset = pickle.loads(pickle.dumps(dataset))
    assert dataset.element_spec == (TensorSpec((None, 4, 4, 3), np.float32), TensorSpec((None,), np.int32))
    assert opened == []
    shares = [batch.data[1].tolist() for batch in dataset.batches(lambda rows: slice(0, rows // 2))]
    assert shares == [[0, 0], [1, 2]]
    assert sorted(opened) == ["a.JPG", "clear.png", "deep.png", "y.jpeg"]


def test_files_go_to_workers_with_their_labels(folder: Path) -> None:
    dataset = image_dataset_from_directory(folder, image_size=(4, 4), shuffle=False, verbose=False)
    (step,) = dataset.files
    assert len(step.paths) == 8
    halves = [dataset.with_files_of(2, k, divide_batches=False) for k in range(2)]
    assert [next(half.as_numpy_iterator())[1].tolist() for half in halves] == [[0, 0, 1, 2], [0, 1, 2, 2]]


def test_a_damaged_image_is_named(folder: Path, tmp_path: Path) -> None:
    content = (folder / "cat" / "b.png").read_bytes()
    (tmp_path / "b.png").write_bytes(content[:-200])
    dataset = image_dataset_from_directory(tmp_path, labels=None, verbose=False)
    with pytest.raises(InputError, match=r"The image .*b\.png cannot be read: .*truncated"):
        list(dataset.as_numpy_iterator())
    (tmp_path / "b.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"The image .*b\.png cannot be read: cannot identify"):
        list(dataset.as_numpy_iterator())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": [1, 2]}, "labels is a list of 2; there are 10 files"),
        ({"labels": "no"}, "labels is 'no'; there are 10 files"),
        ({"labels": [0] * 9 + [7], "label_mode": "categorical"}, "2 different labels go from 0 to 7"),
        ({"labels": None, "class_names": ["cat"]}, "labels is not 'inferred'"),
        ({"class_names": ["dog"]}, r"subfolders of .* are \['ant', 'bee', 'cat'\]"),
        ({"class_names": []}, "no file in .* belongs to a class"),
        ({"label_mode": "binary"}, "there are 3 classes: ant, bee, cat"),
        ({"label_mode": "one_hot"}, "label_mode is 'one_hot'"),
        ({"color_mode": "bgr"}, "color_mode is 'bgr'"),
        ({"interpolation": "area"}, "interpolation is 'area'"),
        ({"image_size": (0, 5)}, "height is 0"),
        ({"data_format": "HWC"}, "data_format is 'HWC'"),
        ({"crop_to_aspect_ratio": True, "pad_to_aspect_ratio": True}, "both True"),
        ({"validation_split": 0.2}, "validation_split is 0.2, subset is None"),
        ({"validation_split": 2, "subset": "both"}, "validation_split is 2"),
        ({"subset": "training"}, "validation_split is None, subset is 'training'"),
        ({"validation_split": 0.2, "subset": "both"}, "without a seed"),
        ({"validation_split": 0.1, "subset": "both", "seed": 1}, "validation_split is 0.1, of 8 files"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_arguments_that_cannot_be_followed(folder: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        image_dataset_from_directory(folder, verbose=False, **arguments)


def test_folders_without_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="nowhere' is not a folder"):
        image_dataset_from_directory(tmp_path / "nowhere")
    (tmp_path / "cat").mkdir()
    with pytest.raises(InputError, match=r"no file in .* that ends in \.bmp, \.gif"):
        image_dataset_from_directory(tmp_path, verbose=False)
    save(tmp_path / "cat" / "a.png", "RGB")
    image_dataset_from_directory(tmp_path)
    assert f"found 1 files belonging to 1 classes in {tmp_path}" in capsys.readouterr().err


def test_texts_are_those_of_keras(tmp_path: Path) -> None:
    for name, text in (("b/1.txt", "two words"), ("a/2.txt", "wörd"), ("a/1.txt", ""), ("a/no.md", "x")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    ours = text_dataset_from_directory(tmp_path, shuffle=False, verbose=False)
    theirs = keras.utils.text_dataset_from_directory(tmp_path, shuffle=False, verbose=False, format="grain")
    ((texts, labels),), ((their_texts, their_labels),) = ours.as_numpy_iterator(), theirs
    assert [text.decode() for text in texts] == list(their_texts) == ["", "wörd", "two words"]
    assert labels.tolist() == their_labels.tolist() == [0, 0, 1]
    assert ours.class_names == theirs.class_names == ["a", "b"]
    short = text_dataset_from_directory(tmp_path, labels=None, max_length=4, shuffle=False, verbose=False)
    assert next(short.as_numpy_iterator()).tolist() == [b"", "wör".encode(), b"two "]
    with pytest.raises(InputError, match="max_length is 0"):
        text_dataset_from_directory(tmp_path, max_length=0)
    with pytest.raises(InputError, match="label_mode is 'one_hot'"):
        text_dataset_from_directory(tmp_path, label_mode="one_hot")  # type: ignore[arg-type]
