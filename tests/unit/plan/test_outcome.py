"""The answer of `stratagem plan --on`."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from stratagem.plan.compiled_step import Bytes, CompiledStep
from stratagem.plan.costs import Link
from stratagem.plan.estimate import estimated
from stratagem.plan.outcome import as_json, as_text
from stratagem.plan.place import place_of
from stratagem.plan.schedule import Collective, Schedule

SUMS = (
    Collective("all-reduce", 30_000_000, beside=12, backward=10, moved=900_000_000),
    Collective("all-reduce", 10_000_000),
)
USED = Bytes(
    state=120_000_000,
    batch=1_000_000,
    padding=0,
    temporary=2_000_000_000,
    results=512,
    program=0,
    reused=120_000_000,
)
STEP = CompiledStep(
    name="train_step of Sequential",
    place=place_of("h100:8"),
    devices=8,
    hosts=1,
    seconds=12.34,
    gradient_bytes=40_000_000,
    bytes=USED,
    schedule=Schedule(SUMS, moved=10_056_000_000, host_calls=0),
    operations={"float32": 988_000_000_000},
)


def text_of(step: CompiledStep, network: str = "10gbe") -> str:
    return as_text(step, estimated(step, Link(seconds_per_byte=1e-9)), network)


def test_what_a_person_reads() -> None:
    # 2 x 7/8 of 40 MB at 450 GB a second: 0.156 ms; 0.117 of it beside 900 MB that take 0.268 ms. 988 Gflop take 2 ms.
    assert text_of(STEP).splitlines() == [
        "train_step of Sequential, for 8 x NVIDIA H100 80GB HBM3",
        "",
        "compiled in 12.3 s",
        "",
        "Memory of a device",
        "  variables             120.0 MB   120.0 MB reused for their new values",
        "  rows of the batch       1.0 MB",
        "  temporary               2.0 GB",
        "  results beside them      512 B   new values of variables that are not reused, outputs",
        "  together                2.1 GB   fits: a device has 63.7 GB, the 75% of it that JAX takes",
        "  A batch about 28.6 times as large would fit, by these figures.",
        "",
        "Exchange of a step: 2 all-reduce; 40.0 MB, where the gradients are 40.0 MB",
        "  75% of it while the backward pass computes",
        "  all-reduce             30.0 MB   beside 12 kernels, 10 of them in the backward pass",
        "  all-reduce             10.0 MB   nothing runs beside it",
        "",
        "At best a step takes 3.04 to 5.16 ms. 8 devices do 95% to 99% of the work of 8 separate devices.",
        "Estimated from NVIDIA H100 80GB HBM3's published peaks, which no program reaches: products 2 ms",
        "  (988.0 Gflop of float32), memory 3 ms, exchange 0.156 ms at 450 GB/s, 75% of it beside computing.",
        "  The time does not include waiting for input, starting kernels, and slow kernels.",
    ]


def test_what_does_not_fit_and_what_to_do() -> None:
    large = dataclasses.replace(STEP, bytes=dataclasses.replace(USED, temporary=127_000_000_000))
    lines = text_of(large).splitlines()
    assert not large.fits
    assert any("DOES NOT FIT: a device has 63.7 GB" in line for line in lines)
    advice = lines[lines.index("Try:") + 1 :]
    assert advice == [
        "  A batch of 45% of this size; gradient_accumulation_steps of the optimizer can make up for it.",
        '  keras.config.set_dtype_policy("mixed_bfloat16"): it halves the bytes of most temporary values.',
    ]
    little = dataclasses.replace(STEP, bytes=dataclasses.replace(USED, temporary=70_000_000_000))
    assert text_of(little).splitlines()[-1] == "  A device with more memory, for instance --on h200 (151.4 GB)."


def test_what_xla_refuses_to_compile_for_want_of_memory() -> None:
    step = dataclasses.replace(STEP, place=place_of("tpu:v5e:2x4"), bytes=None, schedule=None, too_much=20.5 * 2**30)
    lines = text_of(step).splitlines()
    assert lines[2] == "It does not fit: it needs 22.0 GB on a device, which has 16.8 GB."
    assert lines[-1] == "  A device with more memory, for instance --on v6e (34.4 GB)."
    assert as_json(step, None)["bytes"] == {"together": 20.5 * 2**30}


def test_fewer_devices_than_there_are_and_hosts() -> None:
    two = dataclasses.replace(STEP, devices=2)
    assert text_of(two).startswith(
        "train_step of Sequential, for 8 x NVIDIA H100 80GB HBM3; the strategy uses 2 of them"
    )
    hosts = dataclasses.replace(STEP, place=place_of("2x8xh100"), devices=16, hosts=2)
    # 40 MB at 1 GB a second between the hosts.
    assert "exchange 40.2 ms at 450 GB/s and 25gbe between" in text_of(hosts, "25gbe").replace("\n  ", " ")


def test_one_device_and_no_peaks() -> None:
    alone = dataclasses.replace(STEP, place=place_of("cpu"), devices=1, schedule=Schedule((), 5, host_calls=2))
    lines = text_of(alone).splitlines()
    assert "No exchange among devices." in lines
    assert lines[-3:] == [
        "Try:",
        "  A step calls Python on the host (2 times), and each call makes the device wait: compute the result",
        "  in dataset.map, or with keras.ops.",
    ]
    assert not any("At best" in line for line in lines)


def test_json_has_the_same_numbers() -> None:
    answer: dict[str, Any] = json.loads(json.dumps(as_json(STEP, estimated(STEP, Link()))))
    assert (answer["fits"], answer["devices"], answer["device"]) == (True, 8, "h100")
    assert answer["bytes"]["together"] == 2_121_000_512
    assert answer["collective_bytes"] == 40_000_000
    assert answer["beside_backward"] == 0.75
    assert answer["seconds"]["shortest"] == pytest.approx(3.039e-3, rel=1e-3)
    assert answer["largest_batch"] == pytest.approx(31.78, rel=1e-3)
    assert answer["advice"] == []
