"""Names of `keras.mixed_precision`, for type checkers."""

from keras.mixed_precision import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
