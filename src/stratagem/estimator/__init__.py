"""Estimator: `model_fn`, `train_and_evaluate`, hooks and checkpoints as `tf.estimator` had them."""

from __future__ import annotations

import stratagem.core.needs_jax  # noqa: F401 - before Keras
from stratagem.estimator import decays, export, feature_column, graph, layers, losses, metrics, optimizers, summary
from stratagem.estimator.added_metrics import add_metrics
from stratagem.estimator.canned.baseline import BaselineClassifier, BaselineEstimator, BaselineRegressor
from stratagem.estimator.canned.combined import (
    DNNLinearCombinedClassifier,
    DNNLinearCombinedEstimator,
    DNNLinearCombinedRegressor,
)
from stratagem.estimator.canned.linear import LinearClassifier, LinearEstimator, LinearRegressor
from stratagem.estimator.canned.network import DNNClassifier, DNNEstimator, DNNRegressor
from stratagem.estimator.checkpoints import WarmStartSettings
from stratagem.estimator.estimator import Estimator
from stratagem.estimator.export import ServingInputReceiver, build_raw_serving_input_receiver_fn
from stratagem.estimator.exporters import BestExporter, Exporter, FinalExporter, LatestExporter
from stratagem.estimator.heads import BinaryClassHead, Head, MultiClassHead, MultiLabelHead, RegressionHead
from stratagem.estimator.hooks.base import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from stratagem.estimator.hooks.early_stopping import (
    make_early_stopping_hook,
    read_eval_metrics,
    stop_if_higher_hook,
    stop_if_lower_hook,
    stop_if_no_decrease_hook,
    stop_if_no_increase_hook,
)
from stratagem.estimator.hooks.evaluation import InMemoryEvaluatorHook
from stratagem.estimator.hooks.profiler import ProfilerHook
from stratagem.estimator.hooks.saving import CheckpointSaverHook, CheckpointSaverListener, SummarySaverHook
from stratagem.estimator.hooks.steps import (
    FinalOpsHook,
    LoggingTensorHook,
    NanLossDuringTrainingError,
    NanTensorHook,
    StepCounterHook,
    StopAtStepHook,
)
from stratagem.estimator.hooks.timer import SecondOrStepTimer
from stratagem.estimator.inputs import numpy_input_fn, pandas_input_fn
from stratagem.estimator.keras_model import model_to_estimator
from stratagem.estimator.run_config import RunConfig
from stratagem.estimator.running_call import get_global_step, get_or_create_global_step, identity
from stratagem.estimator.scaffold import Scaffold
from stratagem.estimator.spec import EstimatorSpec, ModeKeys
from stratagem.estimator.training import EvalSpec, TrainSpec, train_and_evaluate
from stratagem.estimator.updates import group

__all__ = [
    "BaselineClassifier",
    "BaselineEstimator",
    "BaselineRegressor",
    "BestExporter",
    "BinaryClassHead",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "DNNClassifier",
    "DNNEstimator",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedEstimator",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "Exporter",
    "FinalExporter",
    "FinalOpsHook",
    "Head",
    "InMemoryEvaluatorHook",
    "LatestExporter",
    "LinearClassifier",
    "LinearEstimator",
    "LinearRegressor",
    "LoggingTensorHook",
    "ModeKeys",
    "MultiClassHead",
    "MultiLabelHead",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "RegressionHead",
    "RunConfig",
    "Scaffold",
    "SecondOrStepTimer",
    "ServingInputReceiver",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "TrainSpec",
    "WarmStartSettings",
    "add_metrics",
    "build_raw_serving_input_receiver_fn",
    "decays",
    "export",
    "feature_column",
    "get_global_step",
    "get_or_create_global_step",
    "graph",
    "group",
    "identity",
    "layers",
    "losses",
    "make_early_stopping_hook",
    "metrics",
    "model_to_estimator",
    "numpy_input_fn",
    "optimizers",
    "pandas_input_fn",
    "read_eval_metrics",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
    "summary",
    "train_and_evaluate",
]
