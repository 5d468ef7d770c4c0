"""`RunConfig`: defaults, and the cluster that it describes."""

from __future__ import annotations

import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it

from stratagem.estimator import (
    RunConfig,
)


def test_run_config_has_the_defaults_of_tensorflow() -> None:
    config = RunConfig()
    assert (config.save_summary_steps, config.save_checkpoints_steps, config.save_checkpoints_secs) == (100, None, 600)
    assert (config.keep_checkpoint_max, config.keep_checkpoint_every_n_hours) == (5, 10000)
    assert (config.log_step_count_steps, config.session_creation_timeout_secs) == (100, 7200)
    assert (config.task_type, config.task_id, config.global_id_in_cluster, config.is_chief) == ("worker", 0, 0, True)
    assert (config.num_ps_replicas, config.num_worker_replicas, config.master) == (0, 1, "")
    assert bool(config.cluster_spec) is False
    assert (config.tf_random_seed, config.train_distribute, config.eval_distribute) == (None, None, None)
