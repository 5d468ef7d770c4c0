"""`tf.image.sample_distorted_bounding_box`: sizes, shapes and places of what is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.core.errors import InputError, UsageError

WHOLE = [[[0.0, 0.0, 1.0, 1.0]]]


def drawn(count: int, box: Any, **arguments: Any) -> np.ndarray:
    tf.random.set_seed(3)
    crops = []
    for _ in range(count):
        begin, size, found = tf.image.sample_distorted_bounding_box(tf.constant([80, 120, 3]), box, **arguments)
        top, left, rows, columns = *begin.numpy()[:2].tolist(), *size.numpy()[:2].tolist()
        assert (begin.numpy()[2], size.numpy()[2], begin.dtype) == (0, -1, np.int32)
        corners = np.array([top / 80, left / 120, (top + rows) / 80, (left + columns) / 120])
        np.testing.assert_allclose(found.numpy()[0, 0], corners, rtol=1e-6)
        crops.append([top, left, rows, columns])
    return np.array(crops)


def test_crops_have_the_asked_area_and_shape() -> None:
    top, left, rows, columns = drawn(400, WHOLE, area_range=(0.2, 0.6), aspect_ratio_range=(0.75, 1.33)).T
    area, ratio = rows * columns / 9600, columns / rows
    assert 0.19 < area.min() < 0.24
    assert 0.55 < area.max() < 0.61
    assert 0.73 < ratio.min() < 0.78
    assert 1.28 < ratio.max() < 1.36
    assert (top.min(), left.min()) == (0, 0)
    assert (top + rows).max() == 80
    assert (left + columns).max() == 120


def test_crops_hold_a_part_of_an_object() -> None:
    corner = [[[0.0, 0.0, 0.25, 0.25]]]  # 20 by 30 pixels
    top, left, rows, columns = drawn(200, corner, min_object_covered=0.5, area_range=(0.1, 0.3)).T
    held = np.maximum(np.minimum(top + rows, 20) - top, 0) * np.maximum(np.minimum(left + columns, 30) - left, 0)
    whole = (rows == 80) & (columns == 120)
    assert (held[~whole] >= 300).all()
    assert (~whole).sum() > 150


def test_what_cannot_be_drawn_is_the_whole_image() -> None:
    assert drawn(3, WHOLE, min_object_covered=1.0, area_range=(0.1, 0.2)).tolist() == [[0, 0, 80, 120]] * 3


def test_a_seed_chooses_one_crop() -> None:
    sample = tf.image.stateless_sample_distorted_bounding_box
    boxes = [sample([80, 120, 3], WHOLE, seed=(1, seed))[2].numpy().tolist() for seed in (1, 1, 2)]
    assert boxes[0] == boxes[1] != boxes[2]


def test_a_dataset_crops_images() -> None:
    def crop(image: Any) -> Any:
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.shape(image), tf.zeros([0, 0, 4]), use_image_if_no_bounding_boxes=True
        )
        return tf.image.resize(tf.slice(image, begin, size), [8, 8])

    images = np.random.default_rng(0).uniform(size=(4, 20, 30, 3)).astype(np.float32)
    assert [x.shape for x in tf.data.Dataset.from_tensor_slices(images).map(crop)] == [(8, 8, 3)] * 4


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="use_image_if_no_bounding_boxes=True"):
        tf.image.sample_distorted_bounding_box([80, 120, 3], np.zeros((0, 0, 4)))
    with pytest.raises(InputError, match=r"area_range=\(0.5, 2.0\)"):
        tf.image.sample_distorted_bounding_box([80, 120, 3], WHOLE, area_range=(0.5, 2.0))
    with pytest.raises(UsageError, match=r"Dataset\.map"):
        tf.function(lambda box: tf.image.sample_distorted_bounding_box([80, 120, 3], box))(tf.constant(WHOLE))
