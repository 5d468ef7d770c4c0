"""`stratagem plan --on`: what a program's step needs on devices that are not here."""

from __future__ import annotations

import json
from collections.abc import Sequence

from stratagem.plan.compiled_step import compile_step
from stratagem.plan.costs import Link
from stratagem.plan.estimate import estimated
from stratagem.plan.first_step import of_model, of_script, step_of
from stratagem.plan.networks import network
from stratagem.plan.outcome import as_json, as_text
from stratagem.plan.place import Place
from stratagem.plan.topology import devices_of


def answer(what: str, arguments: Sequence[str], place: Place, *, batch: int, network_name: str, in_json: bool) -> str:
    """Return the answer, as text.

    Args:
        what: A program, or a model.
        arguments: Arguments of the program.
        place: The devices.
        batch: Rows of each device, for a model.
        network_name: Name of the network between hosts.
        in_json: Whether to return JSON, for programs.

    Raises:
        UsageError: The compiler for the devices is not installed.
        InputError: There is no such program, model or slice of TPUs; or the program does not train.
    """
    between = network(network_name, Link())  # NCCL's threads and cards cost the devices little
    devices = devices_of(place)
    is_script = what.endswith(".py")
    step = step_of(of_script(what, arguments) if is_script else of_model(what, batch), devices, what)
    compiled = compile_step(step, place)
    estimate = estimated(compiled, between)
    if in_json:
        return json.dumps(as_json(compiled, estimate), indent=2)
    return as_text(compiled, estimate, network_name)
