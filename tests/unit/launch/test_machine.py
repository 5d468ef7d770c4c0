from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from stratagem.launch import machine
from stratagem.launch.machine import free_ports, nvidia_devices, this_machine


@pytest.fixture
def three_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "nvidia_devices", lambda: ("0", "1", "2"))
    monkeypatch.setattr(machine, "_jax_knows_cuda", lambda: True)


def test_the_c_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "confstr", {"CS_GNU_LIBC_VERSION": "glibc 2.36"}.get)
    assert this_machine({}).c_library == "glibc 2.36"


def test_free_ports_differ_and_can_be_bound() -> None:
    ports = free_ports(5)

    assert len(set(ports)) == 5
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", ports[0]))
        assert bound.getsockname()[1] == ports[0]


def test_gpus_are_counted_from_zero_whatever_their_files_are_called(tmp_path: Path) -> None:
    for name in ("nvidia2", "nvidia5", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()

    assert nvidia_devices(tmp_path) == ("0", "1")


@pytest.mark.usefixtures("three_gpus")
@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({}, ("0", "1", "2")),
        ({"CUDA_VISIBLE_DEVICES": "2, 0"}, ("2", "0")),
        ({"CUDA_VISIBLE_DEVICES": "1,-1,2"}, ("1",)),
        ({"CUDA_VISIBLE_DEVICES": ""}, ()),
        ({"JAX_PLATFORMS": "cpu"}, ()),
        ({"JAX_PLATFORMS": "cuda,cpu"}, ("0", "1", "2")),
    ],
)
def test_gpus_that_jax_would_use(variables: dict[str, str], gpus: tuple[str, ...]) -> None:
    assert this_machine(variables).gpus == gpus


def test_a_gpu_without_the_plugin_of_jax_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "nvidia_devices", lambda: ("0",))
    monkeypatch.setattr(machine, "_jax_knows_cuda", lambda: False)

    assert this_machine({}).gpus == ()
