"""Stand-in for the switches between TensorFlow 1 and 2: it is always 2."""

from tools.tensorflow_suites.verdicts import GRAPHS, NotApplicable


def enabled() -> bool:
    """Return whether TensorFlow 2 is switched on."""
    return True


def enable_v2_behavior() -> None:
    """Do nothing: it is on."""


enable = enable_v2_behavior


def disable() -> None:
    """Refuse: there is no TensorFlow 1 to switch to."""
    raise NotApplicable(GRAPHS, "switched on")


def disable_v2_behavior() -> None:
    """Do nothing: a test that needs this uses graphs, and does not apply."""
