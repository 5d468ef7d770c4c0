"""Sums over the processes of one host, through memory that they share."""
