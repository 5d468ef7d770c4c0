"""Exporters: export the trained model after an evaluation, in `train_and_evaluate`."""

from __future__ import annotations

import abc
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stratagem.core.errors import InputError
from stratagem.estimator.checks import unusable
from stratagem.estimator.hooks.early_stopping import read_eval_metrics


class Exporter(abc.ABC):
    """Base of exporters, which are called after each evaluation (`tf.estimator.Exporter`)."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The folder below `model_dir/export` that it writes to."""

    @abc.abstractmethod
    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str | None,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> Any:
        """Export the model, or not.

        Args:
            estimator: The Estimator.
            export_path: The folder to write to.
            checkpoint_path: The checkpoint that was evaluated.
            eval_result: Its metrics.
            is_the_final_export: Whether training has ended.

        Returns:
            The path of the export, or None.
        """


class FinalExporter(Exporter):
    """Export the model once, when training has ended (`tf.estimator.FinalExporter`).

    Args:
        name: The folder below `model_dir/export`.
        serving_input_receiver_fn: As for `Estimator.export_saved_model`.
    """

    def __init__(self, name: str, serving_input_receiver_fn: Callable[[], Any], **options: Any) -> None:
        self._name = name
        self._receiver_fn = serving_input_receiver_fn
        self._keep: int | None = None

    @property
    def name(self) -> str:
        return self._name

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str | None,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> str | None:
        if not self._is_due(estimator, eval_result, is_the_final_export):
            return None
        path = estimator.export_saved_model(export_path, self._receiver_fn, checkpoint_path=checkpoint_path)
        if self._keep is not None:
            exports = [entry for entry in Path(export_path).iterdir() if entry.name.isdigit()]
            for old in sorted(exports, key=lambda folder: int(folder.name))[: -self._keep]:
                shutil.rmtree(old)
        return path

    def _is_due(self, estimator: Any, eval_result: Mapping[str, Any], is_final: bool) -> bool:
        return is_final


class LatestExporter(FinalExporter):
    """Export the model after each evaluation, and keep the newest few (`tf.estimator.LatestExporter`).

    Args:
        name: The folder below `model_dir/export`.
        serving_input_receiver_fn: As for `Estimator.export_saved_model`.
        exports_to_keep: Number of exports to keep; None keeps all.

    Raises:
        InputError: `exports_to_keep` is less than 1.
    """

    def __init__(
        self, name: str, serving_input_receiver_fn: Callable[[], Any], exports_to_keep: int | None = 5, **options: Any
    ) -> None:
        if exports_to_keep is not None and exports_to_keep < 1:
            raise unusable(
                type(self).__name__,
                "The export that was just written could be deleted.",
                "Write the number of exports to keep, 1 or more, or None for all.",
                exports_to_keep=exports_to_keep,
            )
        super().__init__(name, serving_input_receiver_fn)
        self._keep = exports_to_keep

    def _is_due(self, estimator: Any, eval_result: Mapping[str, Any], is_final: bool) -> bool:
        return True


def loss_smaller(best_eval_result: Mapping[str, Any], current_eval_result: Mapping[str, Any]) -> bool:
    """Whether the present loss is smaller than the best so far."""
    return bool(best_eval_result["loss"] > current_eval_result["loss"])


class BestExporter(LatestExporter):
    """Export the model when an evaluation is better than all before (`tf.estimator.BestExporter`).

    Evaluations of earlier runs in the same `model_dir` count too.

    Args:
        name: The folder below `model_dir/export`.
        serving_input_receiver_fn: As for `Estimator.export_saved_model`.
        event_file_pattern: Accepted as in TensorFlow; the evaluations of `estimator.eval_dir()` are read.
        compare_fn: Function of the metrics of the best evaluation and of this one; returns whether this one is better.
        exports_to_keep: Number of exports to keep; None keeps all.
    """

    def __init__(
        self,
        name: str = "best_exporter",
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        event_file_pattern: str | None = None,
        compare_fn: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] = loss_smaller,
        exports_to_keep: int | None = 5,
    ) -> None:
        if serving_input_receiver_fn is None:
            raise InputError(
                "BestExporter was given no serving_input_receiver_fn.",
                "Write BestExporter(serving_input_receiver_fn=lambda: ServingInputReceiver(features)).",
            )
        super().__init__(name, serving_input_receiver_fn, exports_to_keep)
        self._is_better = compare_fn
        self._best: Mapping[str, Any] | None = None

    def _is_due(self, estimator: Any, eval_result: Mapping[str, Any], is_final: bool) -> bool:
        if self._best is None:
            for step, earlier in read_eval_metrics(estimator.eval_dir()).items():
                if step < int(eval_result["global_step"]):
                    self._is_best(earlier)
        return self._is_best(eval_result)

    def _is_best(self, metrics: Mapping[str, Any]) -> bool:
        """Return whether an evaluation is better than all before, and keep it if so."""
        is_best = self._best is None or self._is_better(self._best, metrics)
        if is_best:
            self._best = dict(metrics)
        return is_best
