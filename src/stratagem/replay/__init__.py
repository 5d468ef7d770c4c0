"""`stratagem replay`: a step of a program that is run again from its last backup, and compared bit by bit."""
