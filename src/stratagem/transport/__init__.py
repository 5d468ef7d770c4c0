"""Messages with arrays between the tasks of a parameter-server cluster, over ZeroMQ."""
