"""`stratagem manifest`: the file that starts a program on a cluster of some kind."""
