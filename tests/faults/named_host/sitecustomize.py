"""Gives a process the name of a host, TEST_HOST: Python imports this file first where its folder is in the path."""

from __future__ import annotations

import os
import socket

if name := os.environ.get("TEST_HOST"):
    socket.gethostname = lambda: name
