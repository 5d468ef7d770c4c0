"""`tf.compat.v1.logging`: Python's logging, under the logger of Stratagem.

Source of the semantics: https://www.tensorflow.org/api_docs/python/tf/compat/v1/logging
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from typing import Any, Final

from stratagem.core.log import logger
from stratagem.tf.namespace import explaining

DEBUG: Final = logging.DEBUG
INFO: Final = logging.INFO
WARN: Final = logging.WARNING
WARNING: Final = logging.WARNING
ERROR: Final = logging.ERROR
FATAL: Final = logging.CRITICAL

debug = logger.debug
info = logger.info
warning = logger.warning
warn = logger.warning
error = logger.error
fatal = logger.critical
log = logger.log

_times: Counter[Any] = Counter()


def get_logger() -> logging.Logger:
    """Return the logger that Stratagem's own lines go to (`tf.get_logger`).

    Example:
        >>> get_logger().name
        'stratagem'
    """
    return logger


def set_verbosity(v: int | str) -> None:
    """Show lines of a level and above, on standard error if the program has not set up logging.

    Args:
        v: `INFO`, `WARN`, `ERROR`, ... or the name of one.
    """
    logger.setLevel(v)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
        logger.addHandler(handler)


def get_verbosity() -> int:
    """Return the lowest level of the lines that are shown."""
    return logger.getEffectiveLevel()


def log_if(level: int, msg: str, condition: bool, *args: Any) -> None:
    """Log a line if a condition holds."""
    if condition:
        logger.log(level, msg, *args)


def log_first_n(level: int, msg: str, n: int, *args: Any) -> None:
    """Log a line the first `n` times that the same message is logged."""
    _times[level, msg] += 1
    log_if(level, msg, _times[level, msg] <= n, *args)


def log_every_n(level: int, msg: str, n: int, *args: Any) -> None:
    """Log a line each `n`-th time that the same message is logged, including the first time."""
    _times[level, msg] += 1
    log_if(level, msg, _times[level, msg] % n == 1 % n, *args)


def vlog(level: int, msg: str, *args: Any) -> None:
    """Log a line of detail, with level `DEBUG`."""
    logger.debug(msg, *args)


def flush() -> None:
    """Write the lines that wait in handlers."""
    for handler in itertools.chain(logger.handlers, logging.getLogger().handlers):
        handler.flush()


__getattr__ = explaining(__name__)
