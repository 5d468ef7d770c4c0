"""Members of public classes that a page describes: those for users, described once."""

from __future__ import annotations

import enum
from typing import Any, Final

_DATASET: Final = (
    *("batches", "component_spec", "dense", "drawn_apart", "faster", "has_shard_hint", "in_memory", "joined"),
    *("next_pass", "random_seeds", "reader_pool", "refused_in_batch", "shards", "stacked"),
)
INSIDE: Final = {
    "BackupAndRestore": ("begin_session", "end_session", "like", "set_others"),
    "Checkpoint": ("checkpoint_parts", "restore_from_chief", "save_numbered", "wait_for"),
    "CheckpointLoadStatus": ("found",),
    "CheckpointOptions": ("in_background",),
    "ClusterCoordinator": ("forget", "prepare"),
    "ClusterSpec": ("check_task",),
    "Dataset": _DATASET,
    "DistributedValues": ("shares",),
    "Inspect": ("after_step", "before_step", "begin_watching", "end_watching", "look"),
    "IntegerLookup": ("number_tokens", "output_spec"),
    "Options": ("merged",),
    "ParameterServerStrategy": ("make_for_each_worker",),
    "ReplicaContext": ("combines_gradients", "is_alike", "note_alike", "replicas_counted", "run", "sum"),
    "Strategy": (
        *("check_agreement", "follow_workers", "from_all", "from_chief", "is_default", "require_cross_replica"),
        *("status", "build", "finish_steps", "hands_out_steps", "make_adapter", "make_step", "take_variable"),
    ),
    "StringLookup": ("number_tokens", "output_spec"),
    "TensorSpec": ("admits", "batched", "merged", "of", "row"),
    "TextVectorization": ("number_tokens", "output_spec"),
}
"""Members that have no underscore, because other folders of Stratagem call them, and are not for users, by class.

They are left out of its subclasses too.
"""


def options_of(value: type, described: set[type]) -> str:
    """Return the options of Sphinx's `autoclass` for a class.

    Args:
        value: The class.
        described: The classes that have pages. What a class inherits from one of them stands there.
    """
    elsewhere = [base for base in value.__mro__[1:] if base in described or not is_ours(base)]
    foreign = {name for base in value.__mro__ if not is_ours(base) for name in vars(base)}
    own = {name for base in value.__mro__ if base not in elsewhere for name in vars(base)}
    overridden = {name for name in own & foreign if not name.startswith("__")}
    hidden = sorted(overridden.union(*(INSIDE.get(base.__name__, ()) for base in value.__mro__)))
    options = {
        "members": "",
        "inherited-members": ", ".join(base.__name__ for base in elsewhere),
        **({"show-inheritance": ""} if set(value.__bases__) <= described else {}),
        **({"exclude-members": ", ".join(hidden)} if hidden else {}),
        **({"undoc-members": ""} if issubclass(value, enum.Enum) else {}),
    }
    return "".join(f"   :{name}: {text}".rstrip() + "\n" for name, text in options.items())


def is_ours(value: Any) -> bool:
    """Return whether a class or function is Stratagem's: others are described by Keras, Python or protobuf."""
    return (value.__module__ or "").startswith("stratagem")
