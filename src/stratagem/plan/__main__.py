"""The program behind `stratagem plan`: `python -m stratagem.plan`."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from typing import Final

import click

from stratagem.core.errors import InputError, StratagemError
from stratagem.plan.costs import Hosts
from stratagem.plan.growth import Workload
from stratagem.plan.networks import GLOO, MEMORY, faster, network
from stratagem.plan.place import place_of
from stratagem.plan.report import report
from stratagem.plan.settings import prepare

_FAILED: Final = 2
"""Exit code of a wrong command line."""

_FLOAT32: Final = 4
"""Bytes of a gradient of one parameter."""

_SPREAD: Final = 0.02
"""Relative spread that is assumed of step times that were not measured."""

_COUNT: Final = click.IntRange(min=1)
_SIZE: Final = click.IntRange(min=0)
_TIME: Final = click.FloatRange(min=0, min_open=True)
_PART: Final = click.FloatRange(0, 1)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--parameters", type=_COUNT, metavar="N", help="Trainable float32 parameters. [default: from MODEL]")
@click.option("--bytes", "nbytes", type=_COUNT, metavar="B", help="Bytes of the gradients. [default: from MODEL]")
@click.option("--step-ms", type=_TIME, metavar="T", help="Time of a step on one worker alone. [default: measure MODEL]")
@click.option("--batch", type=_COUNT, default=32, metavar="ROWS", help="Rows of the batch of one worker. [default: 32]")
@click.option("--workers", default="2,4,8,16,32", metavar="N,N", help="Numbers of workers. [default: 2,4,8,16,32]")
@click.option(
    "--network",
    "network_name",
    default="10gbe",
    metavar="NAME",
    help="1gbe, 10gbe, 25gbe, 100gbe, or BANDWIDTH,LATENCY between two workers: 9gbit,60us. [default: 10gbe]",
)
@click.option("--per-host", type=_COUNT, default=1, metavar="K", help="Workers on each host. [default: 1]")
@click.option("--bytes-per-pack", type=_SIZE, default=0, metavar="B", help="As in CommunicationOptions. [default: 0]")
@click.option(
    "--overlap",
    type=_PART,
    default=None,
    metavar="X",
    help="Share of computing that hides the exchange. [default: between hosts the backward pass, else 0]",
)
@click.option(
    "--on", "place_name", metavar="DEVICES", help="Compile for devices: h100:8, 2x8xh100, tpu:v5e:4x4, cpu:2, ..."
)
@click.option("--json", "in_json", is_flag=True, help="Print the result of --on as JSON.")
@click.argument("model", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def main(
    context: click.Context,
    model: str | None,
    parameters: int | None,
    nbytes: int | None,
    step_ms: float | None,
    batch: int,
    workers: str,
    network_name: str,
    per_host: int,
    bytes_per_pack: int,
    overlap: float | None,
    place_name: str | None,
    in_json: bool,
    arguments: tuple[str, ...],
) -> None:
    """Predict how long a step takes on more workers, or what it needs on other devices.

    MODEL is a .keras file, or a function that returns a model. Without MODEL, give --parameters and --step-ms.

    With --on, MODEL may also be a program. It runs up to its first step of training. That step is compiled for the
    devices of --on, which need not be on this machine.

    \b
    A saved model, with 64 rows for each worker:
        stratagem plan model.keras --batch 64 --workers 2,8,32 --network 25gbe
    A function of a program:
        stratagem plan train.py:make_model --workers 4,8 --per-host 4
    Only the numbers of a model:
        stratagem plan --parameters 25600000 --step-ms 180 --workers 8,32,128
    A program, before you rent GPUs or TPUs:
        stratagem plan train.py --on h100:8
        stratagem plan train.py --on tpu:v5e:4x4 -- --batch-size 1024
    """  # noqa: D301 - click keeps the lines below a backspace as they are
    sys.path.insert(0, os.getcwd())
    try:
        if place_name is not None:
            _check_with_place(context, model)
            print(_on(model, arguments, place_name, batch, network_name, in_json))
            return
        _check_without_place(model, arguments, in_json)
        numbers = _numbers(workers)
        hosts = Hosts(network(network_name), MEMORY, GLOO, per_host, network(network_name, GLOO))
        told = nbytes or (parameters and _FLOAT32 * parameters)
        work = _of_model(model, step_ms, batch) if model else _of_numbers(told, step_ms)
        work = dataclasses.replace(work, bytes_per_pack=bytes_per_pack, overlap=overlap)
        better = faster(network_name)
        print(report(work, numbers, hosts, network_name, (better, network(better)) if better else None))
    except StratagemError as error:
        print(f"stratagem: {error}", file=sys.stderr)
        sys.exit(_FAILED)


def _on(
    model: str | None, arguments: tuple[str, ...], place_name: str, batch: int, network_name: str, in_json: bool
) -> str:
    if model is None:
        raise InputError(
            f"--on is {place_name!r}, but no program or model is named.",
            "Name one: stratagem plan train.py --on h100:8, or stratagem plan train.py:make_model --on h100:8",
        )
    place = place_of(place_name)
    prepare(place)
    on = importlib.import_module("stratagem.plan.on")  # with Keras and JAX, which read what was prepared
    return on.answer(model, arguments, place, batch=batch, network_name=network_name, in_json=in_json)


def _check_with_place(context: click.Context, model: str | None) -> None:
    """Refuse options that --on would pass over."""
    gone = ["parameters", "nbytes", "step_ms", "workers", "per_host", "bytes_per_pack", "overlap"]
    if (model or "").endswith(".py"):
        gone.append("batch")
    given = [name for name in gone if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE]
    if given:
        option = "--bytes" if given[0] == "nbytes" else f"--{given[0].replace('_', '-')}"
        raise InputError(
            f"{option} was given with --on.",
            "The program determines the step, and --on determines the devices, with their number and hosts.",
            "Leave it out. A program sets the rows of its batch itself; for a model, --batch sets them. --network "
            "names the network between hosts.",
        )


def _check_without_place(model: str | None, arguments: tuple[str, ...], in_json: bool) -> None:
    if in_json or arguments or (model or "").endswith(".py"):
        found = "--json" if in_json else f"MODEL {model}"
        raise InputError(
            f"{found} was given without --on.",
            "Name the devices to compile for: stratagem plan train.py --on h100:8. To predict more workers from a step "
            "that is measured here, name a function that returns the model: stratagem plan train.py:make_model",
        )


def _numbers(workers: str) -> list[int]:
    try:
        numbers = sorted({int(each) for each in workers.split(",")})
    except ValueError:
        numbers = [0]
    if numbers[0] < 1:
        raise InputError(
            f"--workers is {workers!r}.",
            "The numbers of workers to predict are not known.",
            "Write numbers of workers, separated by commas: --workers 2,4,8,32",
        )
    return numbers


def _of_numbers(gradient_bytes: int | None, step_ms: float | None) -> Workload:
    if not gradient_bytes or not step_ms:
        missing = "MODEL, --parameters or --bytes" if not gradient_bytes else "MODEL or --step-ms"
        raise InputError(
            f"{missing} is missing.",
            "Without it, the work of a step and its exchange are not known.",
            "Name a model (model.keras, or train.py:make_model), or write: --parameters 25600000 --step-ms 180",
        )
    return Workload(gradient_bytes, step_ms / 1e3, spread=_SPREAD)


def _of_model(place: str, step_ms: float | None, batch: int) -> Workload:
    models = importlib.import_module("stratagem.plan.models")  # with Keras and JAX
    model = models.model_of(place)
    nbytes = models.gradient_bytes(model)
    if step_ms:
        return Workload(nbytes, step_ms / 1e3, spread=_SPREAD)
    whole = models.time_step(model, batch)
    if batch == 1:
        return Workload(nbytes, whole.seconds, spread=whole.spread)
    part = models.time_step(model, batch // 2)
    # Two points of a line: what is left where there are no rows.
    share = batch // 2 / batch
    fixed = (part.seconds - share * whole.seconds) / (1 - share)
    return Workload(nbytes, whole.seconds, min(max(fixed, 0.0), whole.seconds), whole.spread)


if __name__ == "__main__":
    main(prog_name="stratagem plan")
