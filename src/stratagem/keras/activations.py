"""Names of `keras.activations`, for type checkers."""

from keras.activations import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
