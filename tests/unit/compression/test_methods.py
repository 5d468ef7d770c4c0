"""Compressed sums: what each makes of a gradient, by hand, and that nothing of a gradient is lost."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from stratagem.compression.methods import Compression, compression_of
from stratagem.compression.quantised import BF16, BLOCK, INT8, QuantisedSums
from stratagem.core.errors import InputError
from stratagem.core.types import CommunicationOptions
from stratagem.mesh.mesh import AXIS, ReplicaMesh

SHAPES = ((40, 30), (7,), (), (3, 3, 4, 32))


def gradients(replicas: int, seed: int = 0) -> list[np.ndarray]:
    """Return a gradient of each shape for each replica: [replicas, *shape]."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(replicas, *shape)).astype(np.float32) for shape in SHAPES]


@functools.cache
def program(compression: Compression, replicas: int, pack_bytes: int | None) -> Callable[..., Any]:
    """Return the compiled sum, which is the same for every step."""

    def body(values: Any, kept: Any) -> Any:
        values, kept = jax.tree.map(lambda leaf: leaf[0], (values, kept))
        return jax.tree.map(lambda leaf: leaf[None], compression.sum(values, kept, pack_bytes))

    mesh, spec = ReplicaMesh(jax.devices()[:replicas]), PartitionSpec(AXIS)
    return jax.jit(jax.shard_map(body, mesh=mesh.mesh, in_specs=spec, out_specs=spec, check_vma=False))


def reduced(
    compression: Compression, values: Sequence[np.ndarray], kept: Any = None, pack_bytes: int | None = 0
) -> tuple[list[np.ndarray], Any]:
    """Sum once over as many virtual devices as there are rows; return what each replica got, and what each keeps."""
    if kept is None:
        slots = [compression.slots(v.shape[1:]) if v.dtype == np.float32 else [] for v in values]
        kept = [[np.zeros((len(values[0]), *s.shape), np.float32) for s in each] for each in slots]
    return jax.tree.map(np.asarray, program(compression, len(values[0]), pack_bytes)(list(values), kept))


@functools.cache
def compressions(replicas: int) -> dict[str, Compression]:
    """Return all that there are, for so many replicas."""
    names: Any = ("bf16", "int8", "powersgd")
    mesh = ReplicaMesh(jax.devices()[:replicas])
    found = {name: compression_of(mesh, CommunicationOptions(compression=name)) for name in names}
    found["bf16 direct"] = QuantisedSums(BF16, replicas, direct=True)
    found["int8 direct"] = QuantisedSums(INT8, replicas, direct=True)
    return {name: each for name, each in found.items() if each is not None}


NAMES = ("bf16", "int8", "powersgd", "bf16 direct", "int8 direct")
"""All different on three replicas; between two, codes go directly anyway."""


def bf16_by_hand(values: np.ndarray) -> np.ndarray:
    """Round to the nearest number of 8 binary digits, ties to even ones."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def int8_by_hand(values: np.ndarray) -> np.ndarray:
    """Round blocks to steps of 1/127 of their largest number."""
    rounded = np.empty_like(values)
    for start in range(0, values.size, BLOCK):
        block = values[start : start + BLOCK]
        scale = np.abs(block).max() / np.float32(127)
        rounded[start : start + BLOCK] = np.round(block / scale).astype(np.int8) * scale
    return rounded


BY_HAND = {"bf16": bf16_by_hand, "int8": int8_by_hand}


@pytest.mark.parametrize("name", ["bf16", "int8"])
def test_the_sum_of_rounded_numbers(name: str) -> None:
    values = np.random.default_rng(1).normal(size=(2, 1000)).astype(np.float32) * np.float32([[1], [50]])
    (total,), ((residual,),) = reduced(compressions(2)[name], [values])
    rounded = np.stack([BY_HAND[name](row) for row in values])
    assert 0.001 < np.abs(values - rounded).max() < 1  # something is rounded off
    np.testing.assert_allclose(total[0], rounded.sum(axis=0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(residual, values - rounded, rtol=1e-3, atol=2e-6)
    np.testing.assert_array_equal(total[0], total[1])


@pytest.mark.parametrize("name", ["bf16", "int8"])
def test_of_more_replicas_the_sum_is_rounded_too(name: str) -> None:
    values = np.random.default_rng(1).normal(size=(4, 4 * BLOCK)).astype(np.float32)
    (total,), ((residual,),) = reduced(compressions(4)[name], [values])
    rounded = np.stack([BY_HAND[name](row) for row in values])
    own_sum = rounded.sum(axis=0)
    np.testing.assert_allclose(total[3], BY_HAND[name](own_sum), rtol=1e-2, atol=1e-6)
    left = values - rounded
    for replica in range(4):  # which adds up a block and rounds the sum keeps what it rounded off
        block = slice(replica * BLOCK, (replica + 1) * BLOCK)
        left[replica, block] += own_sum[block] - total[0, block]
    np.testing.assert_allclose(residual, left, rtol=1e-3, atol=1e-5)


def test_a_matrix_of_low_rank_arrives_whole() -> None:
    """Of rank 2 over both replicas: what P and Q by hand give, and nothing left out once the columns are found."""
    rng = np.random.default_rng(2)
    left, right = rng.normal(size=(30, 2)), rng.normal(size=(2, 20))
    values = np.stack([left @ np.diag([1.0, k]) @ right for k in (1, 3)]).astype(np.float32)
    mesh = ReplicaMesh(jax.devices()[:2])
    compression = compression_of(mesh, CommunicationOptions(compression="powersgd", compression_rank=2))
    assert compression is not None
    (total,), ((residual, factor),) = reduced(compression, [values])
    np.testing.assert_allclose(total[0], values.sum(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(residual.sum(axis=0), 0, atol=1e-4)
    assert factor.shape == (2, 20, 2)
    np.testing.assert_array_equal(factor[0], factor[1])


def test_powersgd_by_hand() -> None:
    values = np.random.default_rng(3).normal(size=(2, 12, 10)).astype(np.float32)
    start = np.random.default_rng(4).normal(size=(10, 2)).astype(np.float32)
    mesh = ReplicaMesh(jax.devices()[:2])
    compression = compression_of(mesh, CommunicationOptions(compression="powersgd", compression_rank=2))
    assert compression is not None
    kept = [[np.zeros_like(values), np.stack([start, start])]]
    (total,), ((residual, factor),) = reduced(compression, [values], kept)
    basis = np.linalg.qr(values.sum(axis=0) @ start)[0]
    own = [row.T @ basis for row in values]
    np.testing.assert_allclose(total[0], basis @ sum(own).T, rtol=1e-4, atol=1e-4)
    for i in range(2):
        np.testing.assert_allclose(residual[i], values[i] - basis @ own[i].T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.abs(factor[0]), np.abs(sum(own)), rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("name", "replicas"), [*((name, 3) for name in NAMES), ("bf16", 2), ("int8", 2), ("powersgd", 2)]
)
@pytest.mark.parametrize("pack_bytes", [0, None])
def test_what_is_left_out_comes_later(name: str, replicas: int, pack_bytes: int | None) -> None:
    """Over steps, what came out and what is kept is what went in; all replicas get the same bits."""
    compression = compressions(replicas)[name]
    kept = None
    received: list[Any] = [0.0] * len(SHAPES)
    sent: list[Any] = [0.0] * len(SHAPES)
    for step in range(5):
        values = gradients(replicas, step)
        totals, kept = reduced(compression, values, kept, pack_bytes)
        for i, (total, value) in enumerate(zip(totals, values, strict=True)):
            np.testing.assert_array_equal(total, np.broadcast_to(total[:1], total.shape))
            received[i], sent[i] = received[i] + total[0].astype(float), sent[i] + value.sum(axis=0, dtype=float)
    for i, slots in enumerate(kept or ()):
        left = slots[0].sum(axis=0, dtype=float) if slots else 0.0
        np.testing.assert_allclose(received[i] + left, sent[i], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_other_dtypes_travel_as_they_are(name: str) -> None:
    values = [np.arange(3600, dtype=dtype).reshape(3, 40, 30) for dtype in (np.int32, np.float16)]
    totals, kept = reduced(compressions(3)[name], values)
    np.testing.assert_array_equal(totals[0][1], values[0].sum(axis=0))
    np.testing.assert_array_equal(totals[1][1], values[1].sum(axis=0))
    assert kept == [[], []]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_what_is_not_finite_is_seen_and_forgotten(name: str, number: float) -> None:
    values = gradients(3)
    values[0][1, 3, 4] = number
    totals, kept = reduced(compressions(3)[name], values)
    assert not np.isfinite(totals[0]).all()
    assert all(np.isfinite(slot).all() for slots in kept for slot in slots)
    totals, kept = reduced(compressions(3)[name], gradients(3), kept)
    assert all(np.isfinite(total).all() for total in totals)


@pytest.mark.parametrize("name", NAMES)
def test_zeros_stay_zeros_and_do_not_stick(name: str) -> None:
    compression = compressions(3)[name]
    zeros = [np.zeros_like(value) for value in gradients(3)]
    totals, kept = reduced(compression, zeros)
    assert all((total == 0).all() for total in totals)
    totals, _ = reduced(compression, gradients(3), kept)
    assert all((total != 0).any() for total in totals)


@pytest.mark.parametrize("name", ["bf16", "int8"])
def test_bytes_on_the_wire(name: str) -> None:
    """The collectives carry integers of the size that is promised."""
    compression = compressions(2)[name]
    mesh = ReplicaMesh(jax.devices()[:2])

    def body(x: jax.Array) -> Any:
        return compression.sum([x[0]], [[jnp.zeros(x.shape[1:])]], 0)

    spec = PartitionSpec(AXIS)
    program = jax.jit(jax.shard_map(body, mesh=mesh.mesh, in_specs=spec, out_specs=PartitionSpec(), check_vma=False))
    text = program.lower(np.zeros((2, 10 * BLOCK), np.float32)).as_text()
    assert text.count("stablehlo.all_gather") == 1
    assert "stablehlo.all_reduce" not in text
    sent = {"bf16": f"tensor<{10 * BLOCK}xui16>", "int8": f"tensor<{10 * (BLOCK + 4)}xi8>"}[name]
    (line,) = [line for line in text.splitlines() if "stablehlo.all_gather" in line]
    assert sent in line or sent.replace("tensor<", "tensor<1x") in line, line


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"compression": "fp16"}, "compression is 'fp16'"),
        ({"compression": "powersgd", "compression_rank": 0}, "compression_rank is 0"),
        ({"compression": "powersgd", "compression_rank": 1.5}, "compression_rank is 1.5"),
        ({"compression": "int8", "compression_rank": 2}, "compression_rank is 2 and compression is 'int8'"),
    ],
)
def test_options_that_mean_nothing(options: dict[str, Any], found: str) -> None:
    with pytest.raises(InputError, match=found):
        CommunicationOptions(**options)


def test_nothing_is_compressed_where_nothing_travels() -> None:
    assert compression_of(ReplicaMesh(jax.devices()[:1]), CommunicationOptions(compression="int8")) is None
    assert compression_of(ReplicaMesh(jax.devices()[:2]), CommunicationOptions()) is None
    assert CommunicationOptions(compression="powersgd").rank == 4
