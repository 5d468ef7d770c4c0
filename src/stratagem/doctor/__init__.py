"""Look at a cluster before a long run: `stratagem doctor`."""
