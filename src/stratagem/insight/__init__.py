"""Show what the tasks of a run spend their time on. The launcher samples the counters of the tasks."""
