"""The lines that an Estimator logs, as TensorFlow's did."""

from __future__ import annotations

from stratagem.cluster.bootstrap import current_peers
from stratagem.core.log import announce, logger


def say(line: str) -> None:
    """Log a line; of several workers only the chief shows it to a person.

    Args:
        line: Without a line break.
    """
    peers = current_peers()
    if peers is None or peers.own == peers.peers[0]:
        announce(line)
    else:
        logger.info(line)
