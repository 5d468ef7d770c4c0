"""The answer of `stratagem plan --on`: for a person at a terminal, and as JSON."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import Any, Final

from stratagem.core.findings import size
from stratagem.plan.compiled_step import CompiledStep
from stratagem.plan.estimate import Estimate
from stratagem.plan.hardware import KNOWN

_WIDTH: Final = 100
_SLACK: Final = 0.9
"""Share of a batch that is thought to fit which is advised."""


def as_text(step: CompiledStep, estimate: Estimate | None, network: str) -> str:
    """Return the answer as lines.

    Args:
        step: The compiled step.
        estimate: The estimate of its time; None if there is none.
        network: Name of the network between hosts.
    """
    of = "" if step.devices == step.place.devices else f"; the strategy uses {step.devices} of them"
    lines = [f"{step.name}, for {step.place}{of}", ""]
    if step.bytes is None:
        lines += [f"It does not fit: it needs {size(step.too_much)} on a device, which has {size(step.available)}."]
    else:
        lines += [f"compiled in {step.seconds:.1f} s", "", *_memory(step), "", *_exchange(step)]
    if estimate is not None:
        lines += ["", *_time(step, estimate, network)]
    advice = advised(step)
    if advice:
        lines += ["", "Try:", *(f"  {line}" for each in advice for line in textwrap.wrap(each, _WIDTH))]
    return "\n".join(lines)


def as_json(step: CompiledStep, estimate: Estimate | None) -> dict[str, Any]:
    """Return the answer as a structure of names and numbers: bytes, seconds, and shares from 0 to 1.

    Args:
        step: The compiled step.
        estimate: The estimate of its time; None if there is none.
    """
    place, used, schedule = step.place, step.bytes, step.schedule
    result: dict[str, Any] = {
        "step": step.name,
        "device": place.hardware.name,
        "hosts": step.hosts,
        "devices": step.devices,
        "compile_seconds": step.seconds,
        "fits": step.fits,
        "bytes_available": step.available or None,
        "gradient_bytes": step.gradient_bytes,
        "operations": dict(step.operations),
        "advice": advised(step),
    }
    if used is None or schedule is None:
        return {**result, "bytes": {"together": step.too_much}}
    result["bytes"] = {**vars(used), "together": used.together}
    result["largest_batch"] = step.largest_batch
    result["collectives"] = [vars(each) for each in schedule.collectives]
    result["collective_bytes"] = schedule.crossing
    result["beside_backward"] = schedule.beside_backward
    result["host_calls"] = schedule.host_calls
    if estimate is not None:
        result["seconds"] = {**vars(estimate), "shortest": estimate.shortest, "longest": estimate.longest}
        result["efficiency"] = list(estimate.efficiency)
    return result


def advised(step: CompiledStep) -> list[str]:
    """Return what to change, the most useful first; an empty list if nothing has to change."""
    advice = []
    if step.schedule is not None and step.schedule.host_calls:
        advice.append(
            f"A step calls Python on the host ({step.schedule.host_calls} times), and each call makes the device wait: "
            "compute the result in dataset.map, or with keras.ops."
        )
    if step.fits:
        return advice
    largest = step.largest_batch
    if largest is not None and largest > 0:
        part = f"{_SLACK * largest:.0%}"
        advice.append(
            f"A batch of {part} of this size; gradient_accumulation_steps of the optimizer can make up for it."
        )
    if "float32" in step.operations and "bfloat16" not in step.operations:
        advice.append('keras.config.set_dtype_policy("mixed_bfloat16"): it halves the bytes of most temporary values.')
    needed = step.too_much if step.bytes is None else step.bytes.together
    share = step.available / step.place.hardware.memory if step.place.hardware.memory else 1.0
    alike = [each for each in KNOWN.values() if each.platform == step.place.hardware.platform]
    enough = [each for each in alike if each.memory * share >= needed]
    if enough:
        smallest = min(enough, key=lambda each: each.memory)
        advice.append(f"A device with more memory, for instance --on {smallest.name} ({size(smallest.memory)}).")
    return advice


def _memory(step: CompiledStep) -> list[str]:
    used = step.bytes
    assert used is not None
    rows = {
        "variables": (used.state, f"{size(used.reused)} reused for their new values"),
        "rows of the batch": (used.batch, ""),
        "padding of both": (used.padding, ""),
        "temporary": (used.temporary, ""),
        "results beside them": (used.results, "new values of variables that are not reused, outputs"),
        "the program": (used.program, ""),
    }
    lines = ["Memory of a device"]
    lines += [f"  {name:<20}{size(nbytes):>10}   {note}".rstrip() for name, (nbytes, note) in rows.items() if nbytes]
    total = f"  {'together':<20}{size(used.together):>10}"
    if not step.available:
        return [*lines, total]
    whole = step.place.hardware.memory
    share = step.available / whole
    of = f"{size(step.available)}" if share > 0.9 else f"{size(step.available)}, the {share:.0%} of it that JAX takes"
    fits = "fits" if step.fits else "DOES NOT FIT"
    lines.append(f"{total}   {fits}: a device has {of}")
    largest = step.largest_batch
    if step.fits and largest is not None:
        times = _SLACK * largest
        shown = f"{times:,.0f}" if times >= 100 else f"{times:.3g}"
        lines.append(f"  A batch about {shown} times as large would fit, by these figures.")
    return lines


def _exchange(step: CompiledStep) -> list[str]:
    schedule = step.schedule
    assert schedule is not None
    if not schedule.collectives:
        return ["No exchange among devices."]
    number = Counter(each.kind for each in schedule.collectives for _ in range(each.times))
    kinds = ", ".join(f"{count} {kind}" for kind, count in number.items())
    lines = [
        f"Exchange of a step: {kinds}; {size(schedule.crossing)}, where the gradients are {size(step.gradient_bytes)}",
        f"  {schedule.beside_backward:.0%} of it while the backward pass computes",
    ]
    large = [each for each in schedule.collectives if each.nbytes * 20 >= schedule.crossing]
    lines += [f"  {each.kind:<20}{size(each.nbytes):>10}   {_beside(each)}" for each in large if len(large) > 1]
    return lines


def _beside(each: Any) -> str:
    if not each.beside:
        return "nothing runs beside it"
    return f"beside {each.beside} kernels, {each.backward} of them in the backward pass"


def _time(step: CompiledStep, estimate: Estimate, network: str) -> list[str]:
    hardware = step.place.hardware
    products = ", ".join(f"{number / 1e9:.1f} Gflop of {dtype}" for dtype, number in step.operations.items() if number)
    low, high = estimate.efficiency
    assumed = (
        f"Estimated from {hardware.title}'s published peaks, which no program reaches: products "
        f"{1e3 * estimate.computing:.3g} ms ({products or 'none'}), memory {1e3 * estimate.moving:.3g} ms, exchange "
        f"{1e3 * estimate.exchanging:.3g} ms at {hardware.link / 1e9:.0f} GB/s"
        + (f" and {network} between hosts" if step.hosts > 1 else "")
        + (f", {estimate.hidden:.0%} of it beside computing" if estimate.exchanging else "")
        + ". The time does not include waiting for input, starting kernels, and slow kernels."
    )
    span = f"{1e3 * estimate.shortest:.3g} to {1e3 * estimate.longest:.3g} ms"
    lines = [f"At best a step takes {span}."]
    if step.devices > 1:
        lines[0] += (
            f" {step.devices} devices do {low:.0%} to {high:.0%} of the work of {step.devices} separate devices."
        )
    return [line for each in (*lines, assumed) for line in textwrap.wrap(each, _WIDTH, subsequent_indent="  ")]
