"""Datasets with the operations of tf.data and one global order, whatever the number of workers."""

from __future__ import annotations

from stratagem.data import experimental
from stratagem.data.batches import Batch, DatasetIterator
from stratagem.data.dataset import Dataset
from stratagem.data.files.array_record import ArrayRecordDataset
from stratagem.data.files.arrays import NumpyDataset
from stratagem.data.files.comma_separated import CsvDataset, make_csv_dataset
from stratagem.data.files.folders import text_dataset_from_directory
from stratagem.data.files.images import image_dataset_from_directory
from stratagem.data.files.lines import FixedLengthRecordDataset, TextLineDataset
from stratagem.data.files.parquet import ParquetDataset
from stratagem.data.files.tfrecord import TFRecordDataset
from stratagem.data.files.writers import TFRecordWriter, write_array_record, write_tfrecord
from stratagem.data.hashing import HashedCrossing, Hashing
from stratagem.data.input_advice import waited_for_input
from stratagem.data.lookup import IntegerLookup, StringLookup
from stratagem.data.nodes import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from stratagem.data.options import AUTOTUNE, AutoShardPolicy, Options
from stratagem.data.sharding.verify import ShardingReport, verify_sharding
from stratagem.data.specs import TensorSpec
from stratagem.data.text import TextVectorization

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "ArrayRecordDataset",
    "AutoShardPolicy",
    "Batch",
    "CsvDataset",
    "Dataset",
    "DatasetIterator",
    "FixedLengthRecordDataset",
    "HashedCrossing",
    "Hashing",
    "IntegerLookup",
    "NumpyDataset",
    "Options",
    "ParquetDataset",
    "ShardingReport",
    "StringLookup",
    "TFRecordDataset",
    "TFRecordWriter",
    "TensorSpec",
    "TextLineDataset",
    "TextVectorization",
    "experimental",
    "image_dataset_from_directory",
    "make_csv_dataset",
    "text_dataset_from_directory",
    "verify_sharding",
    "waited_for_input",
    "write_array_record",
    "write_tfrecord",
]
