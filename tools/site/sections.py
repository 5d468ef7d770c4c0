"""Sections of the site, with the files of the repository that are their pages, in reading order."""

from __future__ import annotations

from typing import Final, NamedTuple

HOME: Final = "docs/README.md"
"""The file that becomes the first page."""


class Section(NamedTuple):
    """A heading in the list of pages.

    Args:
        title: The heading.
        pages: Files below the root of the repository; a pattern stands for those it matches, sorted.
    """

    title: str
    pages: tuple[str, ...]


SECTIONS: Final = (
    Section("First steps", ("docs/first_steps.md", "docs/imports.md", "docs/limits.md")),
    Section(
        "Notebooks",
        (
            "notebooks/one_line_changed.md",
            "notebooks/custom_loop.md",
            "notebooks/kill_a_worker.md",
            "notebooks/larger_than_a_device.md",
        ),
    ),
    Section(
        "Coming from",
        (
            "docs/tensorflow.md",
            "docs/migrating.md",
            "docs/keras.md",
            "docs/estimator.md",
            "docs/horovod.md",
            "docs/tfjob.md",
            "docs/torchrun.md",
            "docs/keras_distribution.md",
        ),
    ),
    Section(
        "Guides",
        (
            "docs/data.md",
            "docs/custom_loops.md",
            "docs/resuming.md",
            "docs/elastic.md",
            "docs/sharding.md",
            "docs/parameter_servers.md",
            "docs/insight.md",
            "docs/planning.md",
        ),
    ),
    Section(
        "Running",
        ("docs/launching.md", "docs/clusters.md", "docs/failures.md", "docs/troubleshooting.md", "docs/wrong_uses.md"),
    ),
    Section("Examples", ("examples/*.py",)),
    Section(
        "Facts",
        (
            "docs/versions.md",
            "docs/hardware.md",
            "docs/tensorflow_tests.md",
            "benchmarks/README.md",
            "benchmarks/results/*.md",
        ),
    ),
    Section(
        "The project",
        (
            "docs/architecture.md",
            "docs/glossary.md",
            "docs/upstream.md",
            "docs/dependencies.md",
            "SECURITY.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
        ),
    ),
)
