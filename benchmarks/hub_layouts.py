"""Layouts of KerasHub's families by `layout_map="auto"`: how much of their weights is divided, and equal numbers.

Each family is made at a tiny size. `--train` fits it on one device and on 2 replicas of 2 devices, and compares the
losses. KerasHub is none of our dependencies: run this in an environment that has it.

    python benchmarks/hub_layouts.py --devices 2
    python benchmarks/hub_layouts.py --train GPT2 Llama Mixtral
"""

from __future__ import annotations

import argparse
import inspect
import math
import os
from collections.abc import Sequence
from typing import Any, Final

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"

import numpy as np

import stratagem
from stratagem import keras
from stratagem.mesh.layouts import Layouts

WORDS: Final = 512
LENGTH: Final = 16
DENSE: Final = {"num_layers": 2, "num_heads": 4, "hidden_dim": 64, "intermediate_dim": 256}
GROUPED: Final = {
    **{"num_layers": 2, "num_query_heads": 4, "num_key_value_heads": 2, "hidden_dim": 64},
    "intermediate_dim": 192,
}
TEXT: Final[dict[str, dict[str, Any]]] = {
    "Albert": {**DENSE, "embedding_dim": 32},
    "Bart": DENSE,
    "Bert": DENSE,
    "Bloom": DENSE,
    "DebertaV3": {**DENSE, "max_sequence_length": 64, "bucket_size": 32},
    "DistilBert": DENSE,
    "FNet": {name: size for name, size in DENSE.items() if name != "num_heads"},
    "Falcon": {"num_layers": 2, "num_attention_heads": 4, "hidden_dim": 64, "intermediate_dim": 256},
    "GPT2": DENSE,
    "GPTNeoX": DENSE,
    "Gemma": {**GROUPED, "num_key_value_heads": 1, "head_dim": 16},
    "GptOss": {**GROUPED, "num_experts": 4, "top_k": 2},
    "Llama": {**GROUPED, "num_key_value_heads": 4},
    "Llama3": GROUPED,
    "Mistral": GROUPED,
    "Mixtral": {**GROUPED, "num_experts": 4, "top_k": 2},
    "OPT": DENSE,
    "Phi3": GROUPED,
    "Qwen": GROUPED,
    "Qwen3": {**GROUPED, "head_dim": 16},
    "QwenMoe": {
        **GROUPED,
        **{"moe_intermediate_dim": 64, "shared_expert_intermediate_dim": 128, "num_experts": 4, "top_k": 2},
    },
    "Qwen3Moe": {**GROUPED, "head_dim": 16, "moe_intermediate_dim": 64, "num_experts": 4, "top_k": 2},
    "Roberta": DENSE,
    "T5": DENSE,
    "XLNet": DENSE,
}
"""Families that read text, and their sizes."""


def backbone(family: str) -> keras.Model:
    """Return a tiny model of a family."""
    import keras_hub  # pyright: ignore[reportMissingImports]

    kind = getattr(keras_hub.models, f"{family}Backbone")
    # What depends on the number of replicas by its nature: random zeros, and an expert's share of a replica's words.
    without = {"dropout": 0.0, "router_aux_loss_coefficient": 0.0, "router_aux_loss_coef": 0.0}
    taken = {name: value for name, value in without.items() if name in inspect.signature(kind).parameters}
    return kind(vocabulary_size=WORDS, **TEXT[family], **taken)


def divided(model: keras.Model, devices: int) -> tuple[float, list[str]]:
    """Return which share of a model's bytes is divided, and the largest weights that stay whole."""
    layouts = Layouts(devices, None)
    sizes = {weight.path: math.prod(weight.shape) for weight in model.weights}
    whole = [weight.path for weight in model.weights if layouts.axis_of(weight.path, weight.shape, min_size=1) is None]
    share = 1 - sum(sizes[path] for path in whole) / sum(sizes.values())
    return share, sorted(whole, key=sizes.__getitem__, reverse=True)[:2]


def losses(family: str, strategy: stratagem.Strategy) -> list[float]:
    """Return the losses of three epochs of a classifier on a family's last output for each word."""
    keras.utils.set_random_seed(7)
    rng = np.random.default_rng(0)
    with strategy.scope():
        inner = backbone(family)
        outputs = [inner.output] if keras.ops.is_tensor(inner.output) else [*inner.output.values()]
        output = next(each for each in reversed(outputs) if len(each.shape) == 3)
        model = keras.Model(inner.inputs, keras.layers.Dense(4)(keras.layers.GlobalAveragePooling1D()(output)))
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    rows = 8
    words, ones = rng.integers(0, WORDS, (rows, LENGTH)), np.ones((rows, LENGTH), "int32")
    x = {
        each.name: words if "token" in each.name else 0 * ones if "segment" in each.name else ones
        for each in model.inputs
    }
    return model.fit(x, rng.integers(0, 4, rows), batch_size=rows, epochs=3, verbose=0).history["loss"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--devices", type=int, default=2, help="of a replica")
    parser.add_argument("--train", nargs="*", metavar="FAMILY", help="train these; all where none is named")
    options = parser.parse_args(arguments)
    if options.train is None:
        for family in TEXT:
            share, whole = divided(backbone(family), options.devices)
            print(f"{family:12s} {share:6.1%}  {'' if share >= 0.95 else 'whole: ' + ', '.join(whole)}")
        return
    one = stratagem.OneDeviceStrategy("cpu:0")
    several = stratagem.MirroredStrategy(model_parallel=2, layout_map="auto", shard_min_size=1)
    for family in options.train or TEXT:
        expected, found = losses(family, one), losses(family, several)
        apart = max(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True))
        print(f"{family:12s} losses {expected[0]:.5f} to {expected[-1]:.5f}, off by {apart:.1e}", flush=True)


if __name__ == "__main__":
    main()
