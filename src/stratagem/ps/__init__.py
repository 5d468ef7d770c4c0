"""Parameter servers: variables that live in tasks of their own, workers that compute, a chief that hands out work."""
