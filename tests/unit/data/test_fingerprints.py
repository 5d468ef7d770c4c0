"""Fingerprints of texts, held against TensorFlow 2.21's `tf.strings.to_hash_bucket_fast`."""

from __future__ import annotations

import pytest

import stratagem.tf as tf
from stratagem.data.fingerprints import fingerprint
from stratagem.errors import InputError

LONG = "a longer text of more than 16 bytes"


@pytest.mark.parametrize(
    ("text", "bucket"),
    [
        ("", 377723),
        ("foo", 403268),
        ("King", 538349),
        (LONG, 303536),
        ("x" * 40, 326595),
        ("y" * 100, 299856),
    ],
)
def test_a_text_has_the_bucket_of_tensorflow(text: str, bucket: int) -> None:
    assert fingerprint(text.encode()) % 1000003 == bucket
    assert tf.strings.to_hash_bucket_fast([text], 1000003).tolist() == [bucket]


def test_there_is_a_bucket() -> None:
    with pytest.raises(InputError, match=r"was given 0 buckets"):
        tf.strings.to_hash_bucket_fast(["a"], 0)
