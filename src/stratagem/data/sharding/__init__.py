"""Division of a dataset among workers, and the proof that each row is read once."""
