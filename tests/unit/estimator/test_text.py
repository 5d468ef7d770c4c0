"""Text in batches: fingerprints, vocabularies, names."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from stratagem.core.errors import InputError
from stratagem.estimator.text import Names, Text, Vocabulary, encoded, encoding, fingerprints, restored


def text(*words: Any) -> Text:
    return Text(jnp.asarray(fingerprints(np.array(words, object))))


def test_text_travels_as_fingerprints() -> None:
    ragged = np.empty(2, object)
    ragged[:] = [np.array(["a"], object), np.array(["b", "a", "c"], object)]
    lengths = np.empty(2, object)
    lengths[:] = [np.array([3]), np.array([1, 2])]
    batch = {
        "w": np.array(["a", "b"]),
        "bytes": np.array([b"b", None], object),
        "r": ragged,
        "n": lengths,
        "x": np.ones(2),
    }
    found = restored(encoded((batch, np.array(["b", "b"]))))
    assert isinstance(found, tuple)
    features, labels = found
    assert (features["w"] == "a").tolist() == [True, False]
    assert (features["w"] != features["bytes"]).tolist() == [True, True]
    assert (labels == np.array(["b", "c"])).tolist() == [True, False]
    assert features["r"].shape == (2, 4)
    assert (features["r"][1] == "a").tolist() == [False, True, False, False]
    assert features["n"].tolist() == [[3, -1], [1, 2]]
    assert features["x"] is batch["x"]
    (first,) = encoding(iter([{"w": np.array(["a"])}]))
    assert (restored(first)["w"] == "a").tolist() == [True]
    with pytest.raises(InputError, match="Devices compute with numbers"):
        jnp.sum(features["w"])
    assert Names(np.array([[1], [0]]), (b"x", b"y")).words().tolist() == [[b"y"], [b"x"]]


def test_words_whose_fingerprints_begin_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = {b"a": (5, 1), b"b": (5, 2), b"c": (9, 1), b"d": (5, 3)}
    monkeypatch.setattr("stratagem.estimator.text._fingerprint", halves.__getitem__)
    assert Vocabulary(["c", "a", "b"]).places(text("a", "b", "c", "d")).tolist() == [1, 2, 0, -1]
