"""Places that `--on` names."""

from __future__ import annotations

import pytest

from stratagem.core.errors import InputError
from stratagem.plan.place import place_of


@pytest.mark.parametrize(
    ("text", "name", "hosts", "per_host", "shape"),
    [
        ("h100:8", "h100", 1, 8, ""),
        ("H100", "h100", 1, 1, ""),
        ("gpu:a100-40gb:4", "a100-40gb", 1, 4, ""),
        ("2x8xh100", "h100", 2, 8, ""),
        ("3x1xl4", "l4", 3, 1, ""),
        ("tpu:v5e:4x4", "v5e", 1, 16, "4x4"),
        ("v5p:2x2x2", "v5p", 1, 8, "2x2x2"),
        ("v5e:4", "v5e", 1, 4, "4x1"),
        ("v5p", "v5p", 1, 1, "1x1x1"),
        ("cpu:4", "cpu", 1, 4, ""),
    ],
)
def test_a_place_is_read(text: str, name: str, hosts: int, per_host: int, shape: str) -> None:
    place = place_of(text)
    assert (place.hardware.name, place.hosts, place.per_host, place.shape) == (name, hosts, per_host, shape)
    assert place.devices == hosts * per_host


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("h101:8", "--on is 'h101:8': h101 is not known; h100 is."),
        ("8", "--on is '8': it is not a device and a number."),
        ("h100:0", "--on is 'h100:0': it has no devices."),
        ("0x8xh100", "--on is '0x8xh100': it has no devices."),
        ("h100:2x4", "--on is 'h100:2x4': only a slice of TPUs has a shape."),
        ("2x4xv5e", "--on is '2x4xv5e': TPU v5e needs the shape of a slice."),
        ("h100:-1", "--on is 'h100:-1': it is not a device and a number."),
        ("", "--on is '': it is not a device and a number."),
        ("tpu:", "--on is 'tpu:': it is not a device and a number."),
    ],
)
def test_what_is_none_is_refused(text: str, found: str) -> None:
    with pytest.raises(InputError, match=r"Write a device and how many there are: --on h100:8") as refused:
        place_of(text)
    assert str(refused.value).startswith(found)
