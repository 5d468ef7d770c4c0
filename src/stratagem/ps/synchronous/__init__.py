"""Synchronous training in rounds: when one is full, what workers give to it, how all servers apply it."""
