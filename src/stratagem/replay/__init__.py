"""`stratagem replay`: run a step of a program again from its last backup, and compare it bit by bit."""
