"""Names of `keras.utils`, for type checkers."""

from keras.utils import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
