"""Cluster of tasks: who is in it, which task this one is, how the tasks meet and end."""
