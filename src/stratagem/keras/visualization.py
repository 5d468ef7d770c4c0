"""Names of `keras.visualization`, for type checkers."""

from keras.visualization import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
