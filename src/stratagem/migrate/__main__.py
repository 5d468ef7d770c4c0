"""The program behind `stratagem migrate`: `python -m stratagem.migrate`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from stratagem.core import optional
from stratagem.core.errors import InputError
from stratagem.core.files import draft_of
from stratagem.migrate import jobs
from stratagem.migrate.findings import Kind
from stratagem.migrate.report import difference, report

_FAILED = 2
"""Exit code where a file could not be read, as of a wrong command line."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--write",
    is_flag=True,
    help="Rewrite the files; with --manifest, write NAME.KIND.yaml beside each. [default: show what would change]",
)
@click.option("--check", is_flag=True, help="Exit with 1 if something is missing or must be rewritten.")
@click.option("--manifest", "are_manifests", is_flag=True, help="PATHS are files with TFJobs of Kubeflow.")
@click.option(
    "--for",
    "kind",
    type=click.Choice(list(jobs.KINDS)),
    help="Kind of job to convert TFJobs to. [default: jobset]",
    metavar="KIND",
)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
def main(paths: tuple[Path, ...], write: bool, check: bool, are_manifests: bool, kind: str | None) -> None:
    """Rewrite TensorFlow programs for stratagem.tf. Report which names work, mean something else, or are missing.

    PATHS are Python files, notebooks, or folders of them.

    \b
    See what would change:
        stratagem migrate train.py
    Change the files:
        stratagem migrate --write train.py models/
    Convert a TFJob to a JobSet, a TrainJob or an indexed-job:
        stratagem migrate --manifest tfjob.yaml --for jobset > job.yaml
    """  # noqa: D301 - click keeps the lines below a backspace as they are
    if kind and not are_manifests:
        raise click.UsageError("--for needs --manifest.")
    if check and are_manifests:
        raise click.UsageError("--check is for programs; leave it out with --manifest.")
    try:
        optional.load("yaml" if are_manifests else "libcst", "migrate", "stratagem migrate")
    except InputError as error:
        print(f"stratagem: {error}", file=sys.stderr)
        sys.exit(_FAILED)
    if are_manifests:
        sys.exit(_convert(paths, kind or "jobset", write))
    files = importlib.import_module("stratagem.migrate.files")  # with libcst
    located, failed, pending = [], False, False
    for path in files.programs_in(paths):
        try:
            migrated = files.migrate_file(path)
            changes = migrated.new != migrated.old
            if changes and write:
                migrated.write()
            elif changes:
                click.echo(difference(str(path), migrated.old, migrated.new))
        except (InputError, OSError) as error:
            print(f"stratagem: {path}: {error}\n", file=sys.stderr)
            failed = True
            continue
        pending = pending or (changes and not write)
        located += migrated.findings
    click.echo(report(located, is_written=write))
    is_missing = any(entry.finding.kind is Kind.MISSING for entry in located)
    sys.exit(_FAILED if failed else int(check and (is_missing or pending)))


def _convert(paths: tuple[Path, ...], kind: str, write: bool) -> int:
    """Convert TFJobs; say what is not taken over, a line for each; return the exit code."""
    manifests = importlib.import_module("stratagem.migrate.manifests")  # with yaml
    code = 0
    for number, path in enumerate(paths):
        try:
            converted = manifests.convert_file(path, kind)
            if write:
                click.echo(f"{path}: written to {_write_beside(path, kind, converted.text)}")
        except (InputError, OSError) as error:
            print(f"stratagem: {path}: {error}\n", file=sys.stderr)
            code = _FAILED
            continue
        if not write:
            click.echo(("---\n" if number else "") + converted.text, nl=False)
        for note in converted.notes:
            print(f"{path}: {note}", file=sys.stderr)
    return code


def _write_beside(path: Path, kind: str, text: str) -> Path:
    """Write a converted manifest beside the old one, whose comments the new one lacks; return its path."""
    new = path.with_name(f"{path.stem}.{kind}{path.suffix}")
    if new.exists():
        raise InputError(f"There is a file {new} already.", "Remove it, or leave out --write and redirect the output.")
    with draft_of(new) as draft:
        draft.write_text(text, "utf-8")
    return new


if __name__ == "__main__":
    main(prog_name="stratagem migrate")
