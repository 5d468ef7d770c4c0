"""Names of `keras.datasets`, for type checkers."""

from keras.datasets import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
