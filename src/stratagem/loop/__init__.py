"""Custom training loops: gradient tapes, compiled functions, losses."""
