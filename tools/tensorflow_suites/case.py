"""Runner of one test file of TensorFlow's suites; a process of its own, or one of several workers.

`python -m tools.tensorflow_suites.case FILE RESULTS SUITE...` appends a line of JSON to RESULTS when a case begins and
when it ends, and leaves out what RESULTS has already: so a file whose process has died is taken up behind the case
that ended it.

Workers begin each case together. Where one has failed and another waits for it, both end, so that the next case finds
no half of an exchange.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import sys
import time
import traceback
import types
import unittest
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from absl.flags import FLAGS
from tools.tensorflow_suites import names
from tools.tensorflow_suites.shims.combinations import MARK, workers
from tools.tensorflow_suites.verdicts import (
    ATTRIBUTES,
    BEGAN,
    ELSEWHERE,
    FAILED,
    GRAPHS,
    HARDWARE,
    NOT_APPLICABLE,
    PASSED,
    PRIVATE,
    REMOVED,
    WORKERS,
    asks_for_an_accelerator,
)

from stratagem import keras
from stratagem.errors import UsageError

SECONDS: Final = 120
"""Longest time of a case."""

TOGETHER: Final = 30
"""Longest time in seconds between the ends of a case on two workers, and from its limit to the end of a process that
does not heed it."""


class Journal(unittest.TestResult):
    """Results, a line each.

    Args:
        path: The file.
        others: Those of the other workers.
    """

    def __init__(self, path: Path, others: Sequence[Path] = ()) -> None:
        super().__init__()
        self.path = path
        self.others = others
        self.began = 0.0
        lines = path.read_text().splitlines() if path.exists() else []
        self.known = {json.loads(line)["case"] for line in lines}

    def write(self, case: str, outcome: str, reason: str = "", detail: str = "") -> None:
        """Append a line."""
        line = {"case": case, "outcome": outcome, "reason": reason, "seconds": round(time.monotonic() - self.began, 2)}
        with self.path.open("a") as file:
            file.write(json.dumps(line | {"detail": detail}) + "\n")

    def startTest(self, test: unittest.TestCase) -> None:
        """Note that a case begins."""
        super().startTest(test)
        self.began = time.monotonic()
        self.write(test.id(), BEGAN)
        signal.alarm(SECONDS)
        # What waits in XLA or in a lock hears no signal.
        faulthandler.dump_traceback_later(SECONDS + TOGETHER, exit=True)

    def stopTest(self, test: unittest.TestCase) -> None:
        """Let the next case begin, when all workers have ended this one."""
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)
        if self.skipped and self.skipped[-1][0] is test:  # All leave it out.
            return
        until = time.monotonic() + TOGETHER
        while not all(_has_ended(other, test.id()) for other in self.others):
            if time.monotonic() > until:
                print(f"{test.id()} has ended here, and not on all workers", flush=True)
                os._exit(1)
            time.sleep(0.005)

    def addSuccess(self, test: unittest.TestCase) -> None:
        """Note a case that passed."""
        self.write(test.id(), PASSED)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """Note a case that does not apply."""
        super().addSkip(test, reason)
        self.write(test.id(), ELSEWHERE if reason.startswith(WORKERS) else NOT_APPLICABLE, reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        """Note a case that failed, or that asks for what there is not: see `need_of`."""
        error = err[1]
        detail = "".join(traceback.format_exception(error))[-3000:]
        needs = need_of(error)
        if needs:
            self.write(test.id(), NOT_APPLICABLE, needs, detail)
        else:
            self.write(test.id(), FAILED, f"{type(error).__name__}: {error}"[:400], detail)
        if isinstance(error, TooLongError):  # What it has begun may go on, and hold its devices.
            os._exit(1)

    addError = addFailure

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        """Note a part of a case that failed."""
        if err is not None:
            self.addFailure(test, err)


def _has_ended(path: Path, case: str) -> bool:
    """Return whether a worker's results say that it has ended a case."""
    written = path.read_text().rpartition("\n")[0] if path.exists() else ""
    began = f'{{"case": {json.dumps(case)}, "outcome": "'
    return any(line.startswith(began) and not line.startswith(began + BEGAN) for line in written.splitlines())


def need_of(error: BaseException | None) -> str:
    """Return which private attribute of TensorFlow an error asks for, or what of TensorFlow 1 or of Keras 2."""
    while error is not None:
        if isinstance(error, AttributeError) and error.name and error.name.startswith("_"):
            return f"{PRIVATE}: attribute {error.name}"
        if isinstance(error, AttributeError) and error.name in ATTRIBUTES:
            return f"{ATTRIBUTES[error.name]}: {error.name}"
        if isinstance(error, AttributeError) and error.name == "graph" and callable(error.obj):
            return f"{GRAPHS}: the graph of a function"
        if isinstance(error, UsageError) and "was called outside a model_fn" in str(error):
            return f"{GRAPHS}: {str(error).partition(' ')[0]} of tf.compat.v1"
        if asks_for_an_accelerator(error):
            return HARDWARE
        removed = _removed(error)
        if removed:
            return f"{REMOVED}: {removed}"
        error = error.__cause__ or error.__context__
    return ""


def _removed(error: BaseException) -> str:
    """Return the method or argument of Keras 2 that an error of Keras 3 says it has no more."""
    if isinstance(error, NotImplementedError):
        return "add_metric" if "`add_metric()` method is deprecated" in str(error) else ""
    if isinstance(error, AttributeError) and isinstance(error.obj, keras.Layer):
        return error.name if error.name in ("get_input_at", "get_output_at", "train_tf_function") else ""
    if "To call stateless_call, " in str(error) and "__call__" in _own_names_of_models(error):
        return "a model that overrides __call__"
    refused = "Argument(s) not recognized: {'gradient_transformers'"
    return "gradient_transformers" if isinstance(error, ValueError) and str(error).startswith(refused) else ""


def _own_names_of_models(error: BaseException) -> set[str]:
    """Return what the classes of a program's own define of the models that an error went through."""
    found = (value for frame, _ in traceback.walk_tb(error.__traceback__) for value in frame.f_locals.values())
    models = (value for value in found if isinstance(value, keras.Model))
    kinds = (kind for model in models for kind in type(model).__mro__ if not kind.__module__.startswith("keras."))
    return {name for kind in kinds for name in vars(kind)}


def cases_of(module: types.ModuleType) -> Iterator[unittest.TestCase]:
    """Yield the cases of a test file."""

    def flat(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
        for each in suite:
            if isinstance(each, unittest.TestSuite):
                yield from flat(each)
            elif not each.id().endswith(".test_session"):  # TensorFlow's name for a context
                yield each

    yield from flat(unittest.TestLoader().loadTestsFromModule(module))


class TooLongError(TimeoutError):
    """A case took too long."""


def _too_long(*_: Any) -> None:
    raise TooLongError(f"the case took more than {SECONDS} s")


def module_name(file: Path, suites: list[Path]) -> str:
    """Return the name by which TensorFlow's own tests know a file."""
    for suite in suites:
        if file.is_relative_to(suite):
            root = next(part for part in reversed(suite.parts) if part in names.ROOTS)
            parts = [
                *suite.parts[len(suite.parts) - suite.parts[::-1].index(root) - 1 :],
                *file.relative_to(suite).parts,
            ]
            return ".".join(parts).removesuffix(".py")
    raise ValueError(f"{file} is in none of {suites}")


def become_chief_or_worker() -> int:
    """Let the first worker be the chief, as in TensorFlow's tests, and return which worker this process is."""
    if workers() == 1:
        return 0
    config = json.loads(os.environ["TF_CONFIG"])
    first, *others = config["cluster"]["worker"]
    index = config["task"]["index"]
    task = {"type": "worker", "index": index - 1} if index else {"type": "chief", "index": 0}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"chief": [first], "worker": others}, "task": task})
    return index


def main(file: str, results: str, *suites: str) -> None:
    """Run the cases of a file.

    Args:
        file: The test file.
        results: Where the lines go; each worker adds its index.
        suites: The folders of the suites.
    """
    folders = [Path(suite).resolve() for suite in suites]
    names.install(folders)
    signal.signal(signal.SIGALRM, _too_long)
    FLAGS(sys.argv[:1])  # absl's own test cases ask for them
    paths = [Path(f"{results}.{index}") for index in range(workers())]
    own = paths.pop(become_chief_or_worker())
    journal = Journal(own, paths)
    try:
        module = importlib.import_module(module_name(Path(file).resolve(), folders))
    except unittest.SkipTest as error:
        journal.write(file, NOT_APPLICABLE, str(error))
        return
    except Exception as error:
        needs = need_of(error)
        reason = needs or f"cannot be imported: {type(error).__name__}: {error}"[:400]
        journal.write(file, NOT_APPLICABLE if needs else FAILED, reason, traceback.format_exc())
        return
    # A suite, not its cases: it makes what a class's cases share.
    left = [case for case in cases_of(module) if case.id() not in journal.known]
    unittest.TestSuite(case for case in left if workers() == 1 or MARK in case.id()).run(journal)
    if workers() == 1:  # At their end strategies would wait for the servers that tests have killed.
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
