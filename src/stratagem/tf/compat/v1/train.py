"""`tf.compat.v1.train`: optimizers, hooks and the global step of Estimator programs; the rest is `tf.train`'s."""

from __future__ import annotations

from typing import Final

from stratagem.tf.namespace import lazy

_NAMES: Final = {
    **{
        name: f"stratagem.estimator.optimizers:{name}"
        for name in (
            "AdadeltaOptimizer",
            "AdagradOptimizer",
            "AdamOptimizer",
            "FtrlOptimizer",
            "GradientDescentOptimizer",
            "MomentumOptimizer",
            "ProximalAdagradOptimizer",
            "RMSPropOptimizer",
        )
    },
    **{
        name: f"stratagem.estimator.decays:{name}"
        for name in (
            "cosine_decay",
            "cosine_decay_restarts",
            "exponential_decay",
            "inverse_time_decay",
            "linear_cosine_decay",
            "natural_exp_decay",
            "piecewise_constant",
            "polynomial_decay",
        )
    },
    "piecewise_constant_decay": "stratagem.estimator.decays:piecewise_constant",
    **{
        name: f"stratagem.estimator:{name}"
        for name in (
            "CheckpointSaverHook",
            "CheckpointSaverListener",
            "FinalOpsHook",
            "LoggingTensorHook",
            "NanLossDuringTrainingError",
            "NanTensorHook",
            "ProfilerHook",
            "Scaffold",
            "SecondOrStepTimer",
            "SessionRunArgs",
            "SessionRunContext",
            "SessionRunHook",
            "SessionRunValues",
            "StepCounterHook",
            "StopAtStepHook",
            "SummarySaverHook",
            "get_global_step",
            "get_or_create_global_step",
        )
    },
    "NewCheckpointReader": "stratagem.tf.checkpoints:load_checkpoint",
    "create_global_step": "stratagem.estimator:get_or_create_global_step",
}
"""What is not in `tf.train`."""

__getattr__, __dir__ = lazy(__name__, _NAMES, behind="stratagem.tf.train")
