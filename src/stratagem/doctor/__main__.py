"""The program that `stratagem doctor` runs in every task: `python -m stratagem.doctor`."""

from __future__ import annotations

import functools
import os
import sys

import click

from stratagem.cluster.bootstrap import current_peers
from stratagem.cluster.detect import detect
from stratagem.cluster.resolver import ClusterResolver
from stratagem.core import patches
from stratagem.core.errors import StratagemError
from stratagem.core.findings import Finding, has_failed, passed, table
from stratagem.core.types import CommunicationOptions
from stratagem.doctor import datasets, facts, layouts, measure
from stratagem.strategy.multi_worker_mirrored import MultiWorkerMirroredStrategy


@click.command()
@click.option("--backup-dir", metavar="DIR")
@click.option("--dataset", metavar="MODULE:FUNCTION")
@click.option("--layout", metavar="MODULE:FUNCTION")
@click.option("--model-parallel", type=click.IntRange(min=1))
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, metavar="SECONDS")
def main(
    backup_dir: str | None, dataset: str | None, layout: str | None, model_parallel: int | None, timeout: float
) -> None:
    """Check the cluster of this task.

    The chief prints the findings of all tasks, and what Stratagem replaces in Keras and JAX. The exit code is 1 if a
    check failed.
    """
    sys.path.insert(0, os.getcwd())
    if layout is not None:
        try:
            print(layouts.described(layout, model_parallel), flush=True)
        except StratagemError as error:
            sys.exit(f"stratagem doctor: {error}")
        return
    findings: list[Finding] = []
    prints = True
    try:
        resolver = detect()
        cluster = resolver.cluster_spec()
        findings.append(passed("cluster", repr(cluster) if cluster else "none: this machine alone"))
        if cluster:
            findings.append(facts.check_names(cluster))
        if not has_failed(findings):
            prints = _look_together(findings, resolver, backup_dir, dataset, timeout)
    except StratagemError as error:
        findings.append(Finding("meeting" if findings else "cluster", "FAIL", str(error)))
    if prints:
        print(table(findings), patches.table(), sep="\n\n", flush=True)
    sys.exit(1 if has_failed(findings) else 0)


def _look_together(
    findings: list[Finding],
    resolver: ClusterResolver,
    backup_dir: str | None,
    dataset: str | None,
    timeout: float,
) -> bool:
    """Add what the tasks find when they meet; return whether this is the chief, which speaks for all."""
    strategy = MultiWorkerMirroredStrategy(resolver, CommunicationOptions(timeout_seconds=timeout))
    peers = current_peers()
    task = "this task" if peers is None else str(peers.own)
    if peers is not None:
        peers.barrier("look at the clock")
        findings.append(passed("meeting", f"{len(peers.peers)} tasks met: {', '.join(map(str, peers.peers))}"))
    all_facts = strategy.from_all("facts", facts.own_facts(task, backup_dir))
    findings += facts.compare(all_facts, backup_dir)
    findings.append(measure.measure_sums(strategy))
    if dataset is not None:
        findings += datasets.check_dataset(strategy, dataset, functools.partial(strategy.from_all, "examples"))
    return strategy.is_chief


if __name__ == "__main__":
    main()
