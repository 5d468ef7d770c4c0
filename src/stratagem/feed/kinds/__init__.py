"""Inputs that are no `stratagem.data.Dataset`, one module for each kind: how their batches are read, and read on."""
