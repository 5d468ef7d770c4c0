"""Objects that a program changes and of which a copy travels to workers."""

from __future__ import annotations


class Changing:
    """Base of objects of which a copy has the state of the moment at which it was made.

    Attributes:
        changes: How often it has changed: a copy is sent again where that has gone up.
    """

    changes: int = 0
