"""Elastic training: who trains together, and what becomes of it when a member dies, joins or leaves."""
