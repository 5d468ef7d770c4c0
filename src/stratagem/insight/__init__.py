"""Insight into a run from outside: what its tasks spend their time on. The launcher samples what tasks count."""
