"""Fingerprints of texts (FarmHash's `Fingerprint64`), by which TensorFlow puts texts into buckets.

The same text has the same bucket in every process, on every machine, and in TensorFlow.
Source of the algorithm: https://github.com/google/farmhash, `farmhashna::Hash64`.
"""

from __future__ import annotations

from typing import Final

_WORD: Final = 2**64 - 1
_K0: Final = 0xC3A5C85C97CB3127
_K1: Final = 0xB492B66FBE98F273
_K2: Final = 0x9AE16A3B2F90404F


def fingerprint(text: bytes) -> int:
    """Return a number from 0 to 2**64 - 1 for a text.

    Args:
        text: Its bytes.

    Example:
        >>> fingerprint(b"foo") % 1000003, fingerprint(b"") % 1000003
        (403268, 377723)
    """
    formula = next((formula for most, formula in _FORMULAS.items() if len(text) <= most), _longer)
    return formula(text)


def _word(text: bytes, place: int, size: int = 8) -> int:
    place = place if place >= 0 else len(text) + place
    return int.from_bytes(text[place : place + size], "little")


def _turned(word: int, bits: int) -> int:
    word &= _WORD
    return (word >> bits | word << 64 - bits) & _WORD


def _mixed(word: int) -> int:
    word &= _WORD
    return word ^ word >> 47


def _of_two(first: int, second: int, factor: int) -> int:
    inner = _mixed((first ^ second) * factor)
    return _mixed((second ^ inner) * factor) * factor & _WORD


def _up_to_16(text: bytes) -> int:
    size = len(text)
    factor = _K2 + 2 * size
    if size >= 8:
        first, last = _word(text, 0) + _K2 & _WORD, _word(text, -8)
        mixed = _turned(last, 37) * factor + first, (_turned(first, 25) + last) * factor
        return _of_two(mixed[0] & _WORD, mixed[1] & _WORD, factor)
    if size >= 4:
        return _of_two(size + (_word(text, 0, 4) << 3), _word(text, -4, 4), factor)
    if size:
        front, back = text[0] + (text[size >> 1] << 8), size + (text[-1] << 2)
        return _mixed(front * _K2 ^ back * _K0) * _K2 & _WORD
    return _K2


def _ends(text: bytes, first_factor: int) -> tuple[int, int, int]:
    """Return what the first and last sixteen bytes give: two numbers, and the first word times its factor."""
    factor = _K2 + 2 * len(text)
    a, b = _word(text, 0) * first_factor, _word(text, 8)
    c, d = _word(text, -8) * factor, _word(text, -16) * _K2
    return (_turned(a + b, 43) + _turned(c, 30) + d) & _WORD, (a + _turned(b + _K2, 18) + c) & _WORD, a


def _up_to_32(text: bytes) -> int:
    one, other, _ = _ends(text, _K1)
    return _of_two(one, other, _K2 + 2 * len(text))


def _up_to_64(text: bytes) -> int:
    factor = _K2 + 2 * len(text)
    y, other, a = _ends(text, _K2)
    z = _of_two(y, other, factor)
    e, f = _word(text, 16) * factor, _word(text, 24)
    g, h = (y + _word(text, -32)) * factor, (z + _word(text, -24)) * factor
    one, other = _turned(e + f, 43) + _turned(g, 30) + h, e + _turned(f + a, 18) + g
    return _of_two(one & _WORD, other & _WORD, factor)


def _weak(text: bytes, place: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = (_word(text, place + 8 * i) for i in range(4))
    a += w
    b = _turned(b + a + z, 21)
    both = a + x + y
    return (both + z) & _WORD, (b + _turned(both, 44) + a) & _WORD


def _longer(text: bytes) -> int:
    x, y = 81, 81 * _K1 + 113
    z = _mixed(y * _K2 + 113) * _K2
    v, w = (0, 0), (0, 0)
    x = x * _K2 + _word(text, 0)
    rest = len(text) - 1 & 63

    def round_at(place: int, factor: int, weight: int) -> None:
        nonlocal x, y, z, v, w
        x = _turned(x + y + v[0] + _word(text, place + 8), 37) * factor & _WORD
        y = _turned(y + v[1] + _word(text, place + 48), 42) * factor
        x ^= w[1] * weight & _WORD
        y = (y + v[0] * weight + _word(text, place + 40)) & _WORD
        z = _turned(z + w[0], 33) * factor & _WORD
        v = _weak(text, place, v[1] * factor, x + w[0])
        w = _weak(text, place + 32, z + w[1], y + _word(text, place + 16))
        z, x = x, z

    for place in range(0, len(text) - 1 - rest, 64):
        round_at(place, _K1, 1)
    factor = _K1 + ((z & 0xFF) << 1)
    w = (w[0] + rest, w[1])
    v = (v[0] + w[0], v[1])
    w = (w[0] + v[0], w[1])
    round_at(len(text) - 64, factor, 9)
    one = _of_two(v[0], w[0], factor) + _mixed(y) * _K0 + z
    return _of_two(one & _WORD, (_of_two(v[1], w[1], factor) + x) & _WORD, factor)


_FORMULAS: Final = {16: _up_to_16, 32: _up_to_32, 64: _up_to_64}
"""The formulas of short texts, by the greatest length in bytes."""


def joined_fingerprint(first: int, second: int) -> int:
    """Return a fingerprint of two fingerprints in their order (TensorFlow's `FingerprintCat64`).

    Args:
        first: The first one.
        second: The second one; or a whole number that stands for itself, as in a cross of columns.

    Example:
        >>> joined_fingerprint(1, 2) != joined_fingerprint(2, 1)
        True
    """
    factor = 0xC6A4A7935BD1E995
    mixed = (first ^ factor) ^ (_mixed(second * factor) * factor & _WORD)
    mixed = mixed * factor & _WORD
    return _mixed(_mixed(mixed) * factor)


def keyed_fingerprint(text: bytes, key: tuple[int, int]) -> int:
    """Return a fingerprint that depends on a key (SipHash-2-4).

    Source of the algorithm: https://www.aumasson.jp/siphash/siphash.pdf

    Args:
        text: The bytes.
        key: Two numbers below 2**64.

    Example:
        >>> hex(keyed_fingerprint(bytes(range(15)), (0x0706050403020100, 0x0F0E0D0C0B0A0908)))
        '0xa129ca6149be45e5'
    """
    first, second = (number & _WORD for number in key)
    state = [
        first ^ 0x736F6D6570736575,
        second ^ 0x646F72616E646F6D,
        first ^ 0x6C7967656E657261,
        second ^ 0x7465646279746573,
    ]
    whole = len(text) // 8 * 8
    words = [_word(text, place) for place in range(0, whole, 8)]
    for word in [*words, int.from_bytes(text[whole:], "little") | (len(text) & 0xFF) << 56]:
        state[3] ^= word
        state = _sipped(_sipped(state))
        state[0] ^= word
    state[2] ^= 0xFF
    for _ in range(4):
        state = _sipped(state)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _sipped(state: list[int]) -> list[int]:
    """Return the state after one round of SipHash."""
    a, b, c, d = state
    a, c = a + b & _WORD, c + d & _WORD
    b, d = _turned(b, 64 - 13) ^ a, _turned(d, 64 - 16) ^ c
    a = _turned(a, 32)
    c, a = c + b & _WORD, a + d & _WORD
    b, d = _turned(b, 64 - 17) ^ c, _turned(d, 64 - 21) ^ a
    return [a, b, _turned(c, 32), d]
