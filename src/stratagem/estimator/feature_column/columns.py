"""The base of all columns, and how they find their features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from stratagem.core.errors import InputError
from stratagem.estimator.text import Text


@dataclass(frozen=True)
class Column(ABC):
    """A way to make numbers of one feature or of several.

    Args:
        name: Its name, from which the names of its variables are made; the key of its feature, if it has one.
    """

    name: str

    @property
    def key(self) -> str:
        """The key of its feature."""
        return self.name

    @property
    @abstractmethod
    def parse_spec(self) -> dict[str, Any]:
        """The specs by which its features are read from files of examples."""


def feature_of(column: Column, key: str, features: Mapping[str, Any]) -> Any:
    """Return a feature, with a row for each example.

    Args:
        column: For which; for the error message.
        key: Of the feature.
        features: All features.

    Raises:
        InputError: It is not there.
    """
    if not isinstance(features, Mapping) or key not in features:
        there = ", ".join(map(repr, features)) if isinstance(features, Mapping) else f"one {type(features).__name__}"
        raise InputError(
            f"The column {column.name!r} needs the feature {key!r}; input_fn gives {there}.",
            f"Let input_fn return a dictionary of features with {key!r} in it.",
        )
    value = features[key]
    return value if isinstance(value, Text) else jnp.asarray(value)


def make_parse_example_spec(feature_columns: Iterable[Column]) -> dict[str, Any]:
    """Return how the features of columns are read by `stratagem.io.parse_example`.

    Args:
        feature_columns: Columns of any kind.

    Raises:
        InputError: Two of them read one feature differently.

    Example:
        >>> from stratagem.estimator.feature_column import numeric_column
        >>> make_parse_example_spec([numeric_column("age")])["age"].shape
        (1,)
    """
    found: dict[str, Any] = {}
    for column in feature_columns:
        for key, spec in column.parse_spec.items():
            before = found.setdefault(key, spec)
            if type(before) is not type(spec) or before.dtype != spec.dtype:
                raise InputError(
                    f"Two columns read the feature {key!r} differently: as {type(before).__name__} of "
                    f"{before.dtype} and as {type(spec).__name__} of {spec.dtype}.",
                    "Give one of the features another key.",
                )
    return found
