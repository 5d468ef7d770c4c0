"""Modules in the place of TensorFlow's and tf_keras's: each name leads to the public one behind it, in Stratagem.

A test file of TensorFlow imports private modules. `names.json` (see record_names.py) says which public name each of
their names has; `tensorflow.python.ops.math_ops.reduce_sum` is `stratagem.tf.math.reduce_sum`. A name that has none
stands for itself until it is used: then the case does not apply.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import operator
import sys
import types
import unittest
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.tensorflow_suites.replacements import replacements
from tools.tensorflow_suites.verdicts import GRAPHS, PRIVATE, PROTOCOLS, REMOVED, SERVICES, NotApplicable

import stratagem.tf as facade

ROOTS: Final = ("tensorflow", "tf_keras")

_TABLE: Final = Path(__file__).with_name("names.json")

_SERVICE: Final = "data.experimental.service."
"""Begins the names of servers that read datasets for others, in processes of TensorFlow's own."""
_OF_THE_SUITES: Final = (
    "_test",
    "_test_base",
    "_test_lib",
    "_testing_utils",
    "combinations",
    "_collection_base",
    "simple_models",
    "test_example",
)
"""Endings of files that belong to the tests; all others are TensorFlow's own code."""


_ABSENT: Final = {
    "keras.experimental.LinearModel": REMOVED,
    "keras.experimental.WideDeepModel": REMOVED,
    "distribute.cluster_resolver.GCEClusterResolver": SERVICES,
    "train.ClusterDef": PROTOCOLS,
    "train.ServerDef": PROTOCOLS,
    "test.create_local_cluster": PROTOCOLS,
}
"""Public names of TensorFlow that Stratagem leaves out by design, and what they need."""


class _Skipped(unittest.TestCase):
    """The base of classes that are built on a private one."""

    def setUp(self) -> None:
        raise NotApplicable(PRIVATE, "a class of its own kind")


class Private:
    """A name that TensorFlow 2 does not export. It may be imported and passed on, but not used.

    Args:
        name: Its path.
        reason: Why a case that uses it does not apply.
    """

    def __init__(self, name: str, reason: str = PRIVATE) -> None:
        self._name = name
        self._reason = reason

    def _refuse(self, *_: Any) -> Any:
        raise NotApplicable(self._reason, self._name)

    def __reduce__(self) -> Any:
        return Private, (self._name, self._reason)

    def __getattr__(self, name: str) -> Private:
        if name.startswith("__"):
            raise AttributeError(name)
        return Private(f"{self._name}.{name}", self._reason)

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        test = arguments[0] if len(arguments) == 1 else None
        if isinstance(test, types.FunctionType | type) and test.__name__.lower().startswith("test"):
            return unittest.skip(str(NotApplicable(self._reason, self._name)))(test)
        return self._refuse()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (_Skipped,)

    __instancecheck__ = __subclasscheck__ = __iter__ = __enter__ = __bool__ = __len__ = __contains__ = _refuse
    __add__ = __getitem__ = __setitem__ = __or__ = __int__ = __float__ = __index__ = _refuse


@functools.cache
def table() -> Mapping[str, Mapping[str, str]]:
    """Return the public name of each name, by module."""
    return json.loads(_TABLE.read_text())["modules"]


class _Module(types.ModuleType):
    """A module of TensorFlow, by the table."""

    def __reduce__(self) -> Any:
        return importlib.import_module, (self.__name__,)  # a function that goes to a worker refers to it

    def __getattr__(self, name: str) -> Any:
        path = f"{self.__name__}.{name}"
        if name.startswith("__"):
            raise AttributeError(name)
        is_known = path in table() or path in _shims()
        if is_known or ((found := importlib.util.find_spec(path)) and found.has_location):  # a file of the suites
            return importlib.import_module(path)
        public = table().get(self.__name__, {}).get(name)
        if self.__name__ in _shims() and hasattr(_shim(self.__name__), name):
            return getattr(_shim(self.__name__), name)
        if path in replacements:
            value = replacements[path]
        elif self.__name__ == "tensorflow.compat.v1" and hasattr(facade.compat.v1, name):
            value = getattr(facade.compat.v1, name)
        elif public is not None:
            value = _public(self.__name__, public)
        else:
            value = _same_place(path)
        setattr(self, name, value)
        return value


def _public(module: str, name: str) -> Any:
    """Return a public name of Stratagem.

    Raises:
        AttributeError: It is not there, and TensorFlow 2 has it.
    """
    name, is_of_version_1 = name.removeprefix("v1:"), name.startswith("v1:")
    if module.startswith("tf_keras") and not is_of_version_1 and not name.startswith("keras."):
        name = f"keras.{name}"
    find = operator.attrgetter(name)
    if is_of_version_1:
        with contextlib.suppress(AttributeError):
            return find(facade.compat.v1)
    try:
        return find(facade)
    except AttributeError:
        reason = _reason_for_absence(name, is_of_version_1=is_of_version_1)
        if not reason:
            raise
    return Private(name, reason)


def _reason_for_absence(name: str, *, is_of_version_1: bool) -> str:
    """Return why a public name of TensorFlow is left out by design, or nothing."""
    if is_of_version_1 or name == "Graph":
        return GRAPHS
    if name.startswith((_SERVICE, "experimental.dtensor.", "distribute.experimental.rpc.")):
        return PROTOCOLS
    return _ABSENT.get(name, "")


def _same_place(path: str) -> Any:
    """Return what stands at the same place in Stratagem, as `layers.Dense` of tf_keras does."""
    root, _, place = path.partition(".")
    if root == "tf_keras":
        place = f"keras.{place}"
    elif not place.startswith("compat."):
        return Private(path)
    try:
        return operator.attrgetter(place)(facade)
    except AttributeError:
        return Private(path, GRAPHS if place.startswith("compat.v1.") else PRIVATE)


class _Facade(types.ModuleType):
    """`tensorflow` itself."""

    def __reduce__(self) -> Any:
        return importlib.import_module, (self.__name__,)

    def __getattr__(self, name: str) -> Any:
        if name in ("__path__", "__file__", "__spec__"):
            raise AttributeError(name)
        if name in ("python", "core"):
            return importlib.import_module(f"tensorflow.{name}")
        if name == "compat":
            return types.SimpleNamespace(v1=importlib.import_module("tensorflow.compat.v1"), v2=self)
        if name == "test":
            return importlib.import_module("tensorflow.python.platform.test")
        if name == "Graph":
            return Private(name, GRAPHS)
        if name == "__internal__":
            return importlib.import_module("tools.tensorflow_suites.shims.internal").INTERNAL
        return getattr(facade, name)


class _Keras(types.ModuleType):
    """`tf_keras` itself."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if f"{self.__name__}.{name}" in table():
            return importlib.import_module(f"{self.__name__}.{name}")
        return getattr(facade.keras, name)


@functools.cache
def _shims() -> Mapping[str, str]:
    """Return the modules of ours that stand for helpers of the suites, by the helper's name."""
    distribute = "tensorflow.python.distribute"
    return {
        f"{distribute}.combinations": "combinations",
        f"{distribute}.strategy_combinations": "strategies",
        f"{distribute}.multi_process_runner": "processes",
        f"{distribute}.multi_worker_test_base": "clusters",
        f"{distribute}.test_util": "distribute_helpers",
        f"{distribute}.input_lib": "inputs",
        f"{distribute}.input_util": "inputs",
        "tensorflow.python.framework.test_util": "framework_helpers",
        "tensorflow.python.eager.test": "testing",
        "tensorflow.python.platform.test": "testing",
        "tensorflow.python.framework.test_combinations": "combinations",
        "tensorflow.python.platform.flags": "flags",
        "tf_keras.testing_infra.test_utils": "keras_helpers",
        "tensorflow.python.tf2": "tf2",
        "tensorflow.python.compat.v2_compat": "tf2",
    }


def _shim(name: str) -> types.ModuleType:
    return importlib.import_module(f"tools.tensorflow_suites.shims.{_shims()[name]}")


class Names(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A finder of TensorFlow's modules.

    Args:
        folders: The suites; where each file of theirs is found by the name of its module.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Find a module; `importlib` calls it."""
        if fullname.split(".")[0] not in ROOTS:
            return None
        source = self._source(fullname)
        if source is not None and fullname not in _shims():
            return importlib.util.spec_from_file_location(fullname, source)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Make a module; `importlib` calls it."""
        if spec.name in ("tensorflow", "tensorflow.compat.v2", "tensorflow.compat.v2.compat.v2"):
            return _Facade(spec.name)
        if spec.name == "tf_keras":
            return _Keras(spec.name)
        if spec.name in _shims():
            module = _Module(spec.name)
            known = vars(_shim(spec.name)).items()
            vars(module).update({name: value for name, value in known if not name.startswith("__")})
            return module
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: names are found when they are asked for."""

    def _source(self, fullname: str) -> Path | None:
        """Return the file of the suites that is this module."""
        if not fullname.endswith(_OF_THE_SUITES):
            return None
        parts = fullname.split(".")
        for folder in self.folders:
            for known in range(1, len(parts)):
                path = folder.joinpath(*parts[known:]).with_suffix(".py")
                if path.is_file() and list(folder.parts[-known:]) == parts[:known]:
                    return path
        return None


def install(folders: Sequence[Path]) -> None:
    """Let `import tensorflow` lead to Stratagem in this process.

    Args:
        folders: The suites.
    """
    # Keras asks once. It must not take what stands here for TensorFlow.
    if importlib.import_module("keras.src.utils.module_utils").tensorflow.available:
        raise RuntimeError("TensorFlow is installed here, and Keras would use it. Run the suites where it is not.")
    sys.meta_path.insert(0, Names(folders))
    sys.modules["dill"] = importlib.import_module("tools.tensorflow_suites.shims.pickles")


def folders() -> list[Path]:
    """Return the suites that `install` was given."""
    return [folder for finder in sys.meta_path if isinstance(finder, Names) for folder in finder.folders]
