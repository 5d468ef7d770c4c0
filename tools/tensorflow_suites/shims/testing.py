"""Stand-in for TensorFlow's module of tests: Stratagem's, and what TensorFlow 1 needs in eager mode."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

from absl.testing import absltest
from tools.tensorflow_suites.names import Private
from tools.tensorflow_suites.verdicts import GRAPHS, PRIVATE, PROTOCOLS, NotApplicable

import stratagem.tf as tf

__all__ = ["TestCase", "main", "mock"]


class TestCase(tf.test.TestCase, absltest.TestCase):
    """A test case whose sessions do nothing, as in eager mode."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what of a test goes to a worker, with a function that refers to it: nothing of unittest's own."""
        kept = {name: value for name, value in vars(self).items() if name != "_outcome"}
        return kept | {"_cleanups": []}

    def assertRaisesRegex(self, expected: Any, *arguments: Any, **named: Any) -> Any:
        """Refuse exceptions that TensorFlow does not export."""
        if isinstance(expected, Private):
            raise NotApplicable(PRIVATE, str(expected))
        return super().assertRaisesRegex(expected, *arguments, **named)  # noqa: PT027

    @contextlib.contextmanager
    def cached_session(self, *_: Any, **__: Any) -> Iterator[Any]:
        """Open nothing; what is asked of the session does not apply."""
        yield Private("Session", GRAPHS)

    session = test_session = cached_session

    def assertProtoEquals(self, expected: str, message: Any, msg: str | None = None) -> None:
        """Fail unless a cluster is the one that the text of a `ClusterDef` describes."""
        assert _jobs(expected) == [(job.name, job.tasks) for job in message.job], msg


_TASK = r"tasks\s*{\s*(?:key:\s*(\d+))?\s*value:\s*'([^']*)'\s*}"
_JOB = rf"job\s*{{\s*name:\s*'(\w+)'((?:\s*{_TASK})*)\s*}}"


def _jobs(text: str) -> list[tuple[str, dict[int, str]]]:
    """Return the jobs of a `ClusterDef` that is written as text."""
    if re.sub(_JOB, "", text).strip():
        raise NotApplicable(PROTOCOLS, "a message that is no ClusterDef")
    jobs = [(job[1], job[2]) for job in re.finditer(_JOB, text)]
    return [(name, {int(key or 0): value for key, value in re.findall(_TASK, tasks)}) for name, tasks in jobs]


def main(*_: object) -> None:
    """Do nothing: cases are run one by one."""


def __getattr__(name: str) -> Any:
    return getattr(tf.test, name)
