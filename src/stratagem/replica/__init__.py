"""The heart: N replicas of a computation on one mesh, and what crosses between them."""
