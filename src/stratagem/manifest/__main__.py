"""The program behind `stratagem manifest`: `python -m stratagem.manifest`."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click

from stratagem.core import exits
from stratagem.core.errors import InputError
from stratagem.manifest.asked import Asked, name_of
from stratagem.manifest.kinds import KINDS, manifest


@click.command(context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False})
@click.option(
    "--for", "kind", type=click.Choice(list(KINDS)), required=True, help="The platform that starts the tasks."
)
@click.option("--workers", type=int, default=2, show_default=True, metavar="N", help="Total number of workers.")
@click.option(
    "--workers-per-node",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="K",
    help="Workers on each node, with Slurm.",
)
@click.option(
    "--gpus", type=click.IntRange(min=0), default=0, show_default=True, metavar="G", help="GPUs of each worker."
)
@click.option(
    "--ps",
    "--parameter-servers",
    "ps",
    type=click.IntRange(min=0),
    default=0,
    metavar="P",
    help="Also start P parameter servers and a chief, for ParameterServerStrategy.",
)
@click.option("--evaluator", is_flag=True, help="Also start a task that evaluates checkpoints during training.")
@click.option("--image", help="Container image with the program, Keras and Stratagem.")
@click.option("--name", help="Name of the job. [default: the name of the program]")
@click.option("--port", type=click.IntRange(1, 65535), help="Port on which tasks listen.")
@click.option("--namespace", help="Kubernetes namespace.")
@click.option(
    "--storage",
    help="Storage that all tasks share, for backups and compiled programs: a volume claim (ReadWriteMany), a folder of "
    "all nodes (Slurm), a folder or volume (compose), or an S3 address (SageMaker).",
)
@click.option("--cpus", type=click.IntRange(min=1), help="CPUs of each task.")
@click.option("--memory", metavar="16Gi", help="Memory of each task.")
@click.option(
    "--max-restarts",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    metavar="N",
    help="Restarts after failures.",
)
@click.option("--module", "-m", "is_module", is_flag=True, help="PROGRAM is a module name, as in python -m.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(
    kind: str, program: str, arguments: tuple[str, ...], is_module: bool, name: str | None, **options: Any
) -> None:
    """Print the file that starts PROGRAM on a cluster, with comments.

    PROGRAM is a path in the image, or in the folder on the nodes. Its own arguments follow it.

    \b
    Four pods with a GPU each:
        stratagem manifest --for jobset --workers 4 --gpus 1 --image registry/train:1 train.py > job.yaml
    Two nodes with four workers each:
        stratagem manifest --for slurm --workers 8 --workers-per-node 4 --gpus 1 train.py > train.sbatch
    """  # noqa: D301 - click keeps the lines below a backspace as they are
    words = ("-m", program, *arguments) if is_module else (program, *arguments)
    try:
        asked = Asked(
            words, name or name_of(program), written_by=shlex.join(["stratagem", "manifest", *sys.argv[1:]]), **options
        )
        click.echo(manifest(kind, asked), nl=False)
    except InputError as error:
        print(f"stratagem: {error}", file=sys.stderr)
        sys.exit(exits.USAGE)


if __name__ == "__main__":
    main(prog_name="stratagem manifest")
