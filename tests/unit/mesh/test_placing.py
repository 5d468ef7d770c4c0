"""Values are put where variables lie, and workers agree on what they put there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import keras
import numpy as np

from stratagem.mesh.mesh import ReplicaMesh, spec_of
from stratagem.mesh.placing import _packs, divided, holds_parts, make_whole, placed


class Strategy:
    """As far as placing knows one."""

    def __init__(self) -> None:
        self.mesh = ReplicaMesh(jax.devices()[:2])
        self.agreed: list[Any] = []

    def check_agreement(self, name: str, fields: Any) -> None:
        self.agreed.append((name, dict(fields)))


def test_only_what_lies_elsewhere_is_placed() -> None:
    strategy = Strategy()
    there, apart = strategy.mesh.replicate(np.ones(2)), strategy.mesh.keep_apart(np.ones((2, 3), np.float32))
    variables = [SimpleNamespace(path=path) for path in ("a", "b", "c")]
    values = placed(strategy, [there, apart, np.arange(3, dtype=np.int32)], variables)
    assert values[0] is there
    assert values[1] is apart
    assert strategy.mesh.keeps(values[2])
    np.testing.assert_array_equal(values[2], [0, 1, 2])
    assert strategy.agreed == [("values to place", {"variable 2 c": "int32[3]"})]


def test_nothing_to_place_asks_nobody() -> None:
    strategy = Strategy()
    assert placed(strategy, [], []) == []
    assert strategy.agreed == []


def test_parts_are_put_together_where_a_model_has_them() -> None:
    model, other = keras.Sequential(), keras.Sequential()
    seen: list[Any] = []
    holds_parts(model, seen.append)
    make_whole(other)
    make_whole(model)
    assert seen == [model]


def test_values_are_divided_along_their_axes() -> None:
    mesh = ReplicaMesh(jax.devices()[:2])
    rows = np.arange(24, dtype=np.float16).reshape(3, 8)
    specs = [spec_of(1), spec_of(0)]
    found = divided(mesh, [rows, rows.T], specs)
    assert [mesh.rests(value, spec) for value, spec in zip(found, specs, strict=True)] == [True, True]
    assert [shard.data.shape for shard in found[0].addressable_shards] == [(3, 4)] * 2
    np.testing.assert_array_equal(found[0], rows)
    np.testing.assert_array_equal(found[1], rows.T)


def test_packs_are_full_and_hold_every_byte_once() -> None:
    shards = [np.arange(size, dtype=np.uint8) for size in (5, 16, 1, 40, 0, 2)]
    packs = list(_packs([shard.nbytes for shard in shards], 8))
    assert [sum(each.part.stop - each.part.start for each in pack) for pack in packs] == [8] * 8
    received = [np.full_like(shard, 255) for shard in shards]
    for pack in packs:
        row = np.zeros(8, np.uint8)
        for each in pack:
            row[each.place] = shards[each.value][each.part]
        for each in pack:
            received[each.value][each.part] = row[each.place]
    for found, sent in zip(received, shards, strict=True):
        np.testing.assert_array_equal(found, sent)
