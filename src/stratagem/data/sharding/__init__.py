"""How a dataset is divided among workers, and the proof that each row is read once."""
