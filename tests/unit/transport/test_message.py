"""Messages are the same on both sides, and bytes that are none are refused."""

from __future__ import annotations

import json
import random
import struct

import ml_dtypes
import numpy as np
import pytest

from stratagem.transport.message import VERSION, Limits, Message, MessageError, decode, encode


def test_message_is_the_same_on_the_other_side() -> None:
    arrays = [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array(7, np.int64),
        np.zeros((0, 4), np.float16),
        np.array([1.5, -2.0], ml_dtypes.bfloat16),
        np.arange(12).reshape(3, 4)[:, ::2],
    ]
    sent = Message("pull", {"names": ["a", "ß"], "deep": {"x": [1, None, 2.5]}}, arrays, id=3)
    received = decode([bytes(frame) for frame in encode(sent)])
    assert (received.kind, received.fields, received.id) == (sent.kind, sent.fields, sent.id)
    assert [(a.dtype, a.shape, a.tolist()) for a in received.arrays] == [(a.dtype, a.shape, a.tolist()) for a in arrays]


def test_arrays_travel_without_a_copy() -> None:
    array = np.arange(4.0)
    frames = encode(Message("push", {}, [array]))
    array[0] = 9.0
    assert bytes(frames[1]) == array.tobytes()
    assert np.shares_memory(decode([frames[0], frames[1]]).arrays[0], array)


def frames_of(header: object, *arrays: bytes, version: int = VERSION, magic: bytes = b"STRG") -> list[bytes]:
    return [struct.pack("!4sH", magic, version) + json.dumps(header).encode(), *arrays]


GOOD = {"kind": "pull", "id": 1, "fields": {}, "memory": None, "arrays": [["float32", [2], False]]}


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        ([], "0 frames"),
        ([b""], "0 bytes"),
        ([b"GET / HTTP/1.1\r\n"], "begins with b'GET '"),
        (frames_of(GOOD, b"12345678", version=VERSION + 1), f"version {VERSION + 1}"),
        (frames_of([]), "not an object"),
        ([frames_of(GOOD)[0] + b"}", b"12345678"], "is not JSON"),
        ([frames_of(GOOD)[0][:6] + b"[" * 100_000, b"12345678"], "is not JSON"),
        (frames_of(GOOD), "1 arrays are announced, but 0 came"),
        (frames_of(GOOD, b"123"), "has 3 bytes"),
        (frames_of({**GOOD, "arrays": [["object", [1], False]]}, b"12345678"), "'object' is not a dtype"),
        (frames_of({**GOOD, "arrays": [["float32", [-2], False]]}, b"12345678"), "is not a shape"),
        (frames_of({**GOOD, "arrays": [["float32", [True, 2], False]]}, b"12345678"), "is not a shape"),
        (frames_of({**GOOD, "arrays": [["float32"]]}, b"12345678"), "cannot be used"),
        (frames_of({**GOOD, "id": "1"}, b"12345678"), "wrong type"),
        (frames_of({**GOOD, "more": 1}, b"12345678"), "wrong type"),
        (frames_of({"kind": "pull"}), "cannot be used"),
        (frames_of({**GOOD, "fields": {"x": "y" * 300}}, b"12345678"), "up to 256"),
        (frames_of(GOOD, *[b""] * 9), "10 frames"),
    ],
)
def test_bytes_that_are_no_message_are_refused(frames: list[bytes], found: str) -> None:
    with pytest.raises(MessageError, match="was refused") as error:
        decode(frames, Limits(header_bytes=256 if "256" in found else 1 << 20, frames=8))
    assert found in str(error.value)


def test_random_damage_is_a_message_or_refused() -> None:
    rng = random.Random(4)
    whole = [bytes(frame) for frame in encode(Message("push", {"names": ["w"]}, [np.arange(8.0)], id=5))]
    refused = 0
    for _ in range(3000):
        frames = [bytearray(frame) for frame in whole]
        for _ in range(rng.randrange(1, 4)):
            frame = rng.choice(frames)
            cut = rng.randrange(len(frame) + 1)
            frame[cut : cut + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
        try:
            decode([bytes(frame) for frame in frames])
        except MessageError:
            refused += 1
    assert refused > 2000  # the rest changed only numbers, or a name


def test_an_array_of_objects_is_not_sent() -> None:
    with pytest.raises(MessageError, match="dtype object"):
        encode(Message("push", {}, [np.array([object()])]))
