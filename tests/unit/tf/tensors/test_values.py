"""Values of the functions of `stratagem.tf`, as TensorFlow 2.21 computes them, eagerly and in functions of datasets."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import stratagem.tf as tf
from stratagem.data import Dataset

Row = tuple[str, str | None, Any]

HELD: Final = {"int64": "int32", "float64": "float32"}
"""JAX's dtypes for those of TensorFlow that it does not hold."""

VALUES: Final[dict[str, list[Row]]] = {
    "making": [
        ("tf.constant([1,2,3])", "int32", [1, 2, 3]),
        ("tf.constant(2.5)", "float32", 2.5),
        ("tf.constant([[1.5,2],[3,4]], dtype=tf.float16)", "float16", [[1.5, 2.0], [3.0, 4.0]]),
        ("tf.constant(3, shape=[2,2])", "int32", [[3, 3], [3, 3]]),
        ('tf.constant("hi")', "string", b"hi"),
        ('tf.constant(["a","bc"])', "string", [b"a", b"bc"]),
        ("tf.constant(True)", "bool", True),
        ("tf.constant(np.arange(4, dtype=np.float64))", "float64", [0.0, 1.0, 2.0, 3.0]),
        ("tf.constant(7, tf.int64)", "int64", 7),
        ("tf.constant([1,2,3,4], shape=(2,2))", "int32", [[1, 2], [3, 4]]),
        ("tf.convert_to_tensor([[1,2],[3,4]], dtype=tf.float32)", "float32", [[1.0, 2.0], [3.0, 4.0]]),
        ("tf.cast([1.7,-1.7], tf.int32)", "int32", [1, -1]),
        ("tf.cast([0,1,5], tf.bool)", "bool", [False, True, True]),
        ("tf.cast([True,False], tf.float32)", "float32", [1.0, 0.0]),
        ("tf.cast(x23, tf.float16)", "float16", [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]),
        ("tf.saturate_cast([300., -5.], tf.uint8)", "uint8", [255, 0]),
        ("tf.zeros([2,3])", "float32", [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
        ("tf.zeros((), tf.int32)", "int32", 0),
        ("tf.ones(3)", "float32", [1.0, 1.0, 1.0]),
        ("tf.ones([2], dtype=tf.int64)", "int64", [1, 1]),
        ("tf.fill([2,3], 9)", "int32", [[9, 9, 9], [9, 9, 9]]),
        ("tf.fill([2], 1.5)", "float32", [1.5, 1.5]),
        ("tf.eye(3)", "float32", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        ("tf.eye(2, 3, dtype=tf.int32)", "int32", [[1, 0, 0], [0, 1, 0]]),
        ("tf.eye(2, batch_shape=[2])", "float32", [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]]),
        ("tf.range(5)", "int32", [0, 1, 2, 3, 4]),
        ("tf.range(2, 10, 3)", "int32", [2, 5, 8]),
        ("tf.range(3., 1, -0.5)", "float32", [3.0, 2.5, 2.0, 1.5]),
        ("tf.range(5, dtype=tf.float32)", "float32", [0.0, 1.0, 2.0, 3.0, 4.0]),
        ("tf.range(0, 1, 0.25)", "float32", [0.0, 0.25, 0.5, 0.75]),
        ("tf.linspace(0., 1., 5)", "float32", [0.0, 0.25, 0.5, 0.75, 1.0]),
        ("tf.linspace(10.0, 12.0, 3)", "float32", [10.0, 11.0, 12.0]),
        ("tf.zeros_like(x23)", "float32", [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
        ("tf.ones_like([1,2], dtype=tf.float32)", "float32", [1.0, 1.0]),
        ("tf.one_hot([0,2,5,-1], 3)", "float32", [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
        ("tf.one_hot([1,0], depth=3, on_value=5, off_value=-1)", "int32", [[-1, 5, -1], [5, -1, -1]]),
        (
            "tf.one_hot([[0,1],[2,0]], 3, axis=1)",
            "float32",
            [[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0], [1.0, 0.0]]],
        ),
        ("tf.one_hot([0,1], 2, on_value=True, off_value=False)", "bool", [[True, False], [False, True]]),
        ("tf.one_hot(tf.constant([1]), 4, dtype=tf.int32, axis=0)", "int32", [[0], [1], [0], [0]]),
        ("tf.shape(x23)", "int32", [2, 3]),
        ("tf.shape(x23, out_type=tf.int64)", "int64", [2, 3]),
        ("tf.shape(x23)[0]", "int32", 2),
        ("tf.size(x23)", "int32", 6),
        ("tf.rank(x23)", "int32", 2),
        ("tf.ensure_shape(x23, [None, 3])", "float32", [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]),
        ("tf.identity(x23)", "float32", [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]),
        ("tf.is_tensor(x23)", "bool", True),
        ("tf.is_tensor([1])", "bool", False),
        ("tf.bitcast(tf.constant(1.0), tf.int32)", "int32", 1065353216),
        ("tf.get_static_value(tf.constant(3))", "int32", 3),
    ],
    "arranging": [
        ("tf.reshape(x23, [-1])", "float32", [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]),
        ("tf.reshape(x23, (3, 2))", "float32", [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]),
        ("tf.reshape(x23, [tf.shape(x23)[1], -1])", "float32", [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]),
        ("tf.expand_dims(x23, 0)", "float32", [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]),
        ("tf.expand_dims(x23, axis=-1)", "float32", [[[0.0], [1.0], [2.0]], [[3.0], [4.0], [5.0]]]),
        ("tf.squeeze(tf.ones([1,2,1]))", "float32", [1.0, 1.0]),
        ("tf.squeeze(tf.ones([1,2,1]), axis=0)", "float32", [[1.0], [1.0]]),
        ("tf.squeeze(tf.ones([1,2,1]), [2])", "float32", [[1.0, 1.0]]),
        ("tf.transpose(x23)", "float32", [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]),
        (
            "tf.transpose(x234, [1,0,2])",
            "float32",
            [
                [[0.0, 1.0, 2.0, 3.0], [12.0, 13.0, 14.0, 15.0]],
                [[4.0, 5.0, 6.0, 7.0], [16.0, 17.0, 18.0, 19.0]],
                [[8.0, 9.0, 10.0, 11.0], [20.0, 21.0, 22.0, 23.0]],
            ],
        ),
        (
            "tf.transpose(x234, perm=(2,0,1))",
            "float32",
            [
                [[0.0, 4.0, 8.0], [12.0, 16.0, 20.0]],
                [[1.0, 5.0, 9.0], [13.0, 17.0, 21.0]],
                [[2.0, 6.0, 10.0], [14.0, 18.0, 22.0]],
                [[3.0, 7.0, 11.0], [15.0, 19.0, 23.0]],
            ],
        ),
        ("tf.concat([x23, x23], 0)", "float32", [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]),
        ("tf.concat([x23, x23], axis=-1)", "float32", [[0.0, 1.0, 2.0, 0.0, 1.0, 2.0], [3.0, 4.0, 5.0, 3.0, 4.0, 5.0]]),
        ("tf.concat([[1],[2,3]], 0)", "int32", [1, 2, 3]),
        ("tf.stack([x23, x23])", "float32", [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]),
        ("tf.stack([1.,2.], axis=0)", "float32", [1.0, 2.0]),
        (
            "tf.stack([x23, x23], axis=-1)",
            "float32",
            [[[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]], [[3.0, 3.0], [4.0, 4.0], [5.0, 5.0]]],
        ),
        ("tf.unstack(x23)", "float32", [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]),
        ("tf.unstack(x23, axis=1)", "float32", [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]),
        ("tf.split(x23, 3, axis=1)", "float32", [[[0.0], [3.0]], [[1.0], [4.0]], [[2.0], [5.0]]]),
        ("tf.split(x23, [1,2], 1)", "float32", [[[0.0], [3.0]], [[1.0, 2.0], [4.0, 5.0]]]),
        ("tf.split(x23, [1,-1], -1)", "float32", [[[0.0], [3.0]], [[1.0, 2.0], [4.0, 5.0]]]),
        ("tf.split(tf.range(6), 2)", "int32", [[0, 1, 2], [3, 4, 5]]),
        ("tf.tile([[1,2]], [2,3])", "int32", [[1, 2, 1, 2, 1, 2], [1, 2, 1, 2, 1, 2]]),
        ("tf.repeat([1,2,3], 2)", "int32", [1, 1, 2, 2, 3, 3]),
        ("tf.repeat([[1,2],[3,4]], [1,2], axis=0)", "int32", [[1, 2], [3, 4], [3, 4]]),
        ("tf.repeat([1,2], repeats=[2,3])", "int32", [1, 1, 2, 2, 2]),
        ("tf.broadcast_to([1,2,3], [2,3])", "int32", [[1, 2, 3], [1, 2, 3]]),
        (
            "tf.pad(x23, [[1,0],[0,2]])",
            "float32",
            [[0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 2.0, 0.0, 0.0], [3.0, 4.0, 5.0, 0.0, 0.0]],
        ),
        (
            "tf.pad(x23, [[1,1],[1,1]], 'REFLECT')",
            "float32",
            [
                [4.0, 3.0, 4.0, 5.0, 4.0],
                [1.0, 0.0, 1.0, 2.0, 1.0],
                [4.0, 3.0, 4.0, 5.0, 4.0],
                [1.0, 0.0, 1.0, 2.0, 1.0],
            ],
        ),
        (
            "tf.pad(x23, [[1,1],[1,1]], mode='SYMMETRIC')",
            "float32",
            [
                [0.0, 0.0, 1.0, 2.0, 2.0],
                [0.0, 0.0, 1.0, 2.0, 2.0],
                [3.0, 3.0, 4.0, 5.0, 5.0],
                [3.0, 3.0, 4.0, 5.0, 5.0],
            ],
        ),
        ("tf.pad([1,2], [[1,2]], constant_values=9)", "int32", [9, 1, 2, 9, 9]),
        ("tf.reverse(x23, [1])", "float32", [[2.0, 1.0, 0.0], [5.0, 4.0, 3.0]]),
        ("tf.reverse(x23, axis=[0,1])", "float32", [[5.0, 4.0, 3.0], [2.0, 1.0, 0.0]]),
        ("tf.roll([1,2,3,4], 1, 0)", "int32", [4, 1, 2, 3]),
        ("tf.roll(x23, shift=[1,1], axis=[0,1])", "float32", [[5.0, 3.0, 4.0], [2.0, 0.0, 1.0]]),
        ("tf.sort([3,1,2])", "int32", [1, 2, 3]),
        (
            "tf.sort(y23, axis=-1, direction='DESCENDING')",
            "float32",
            [[0.7151893, 0.6027634, 0.5488135], [0.6458941, 0.5448832, 0.4236548]],
        ),
        ("tf.argsort([3,1,2])", "int32", [1, 2, 0]),
        ("tf.argsort([1.,3.,1.,2.], direction='DESCENDING', stable=True)", "int32", [1, 3, 0, 2]),
        ("tf.meshgrid([1,2],[3,4,5])", "int32", [[[1, 2], [1, 2], [1, 2]], [[3, 3], [4, 4], [5, 5]]]),
        ("tf.meshgrid([1,2],[3,4,5], indexing='ij')", "int32", [[[1, 1, 1], [2, 2, 2]], [[3, 4, 5], [3, 4, 5]]]),
        (
            "tf.sequence_mask([1,3,2], 5)",
            "bool",
            [[True, False, False, False, False], [True, True, True, False, False], [True, True, False, False, False]],
        ),
        ("tf.sequence_mask([1,2])", "bool", [[True, False], [True, True]]),
        (
            "tf.sequence_mask([[1,2],[0,3]], 3, dtype=tf.float32)",
            "float32",
            [[[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]], [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]],
        ),
        ("tf.stack(tf.unstack(x23))", "float32", [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]),
        ("tf.expand_dims(x23, 1).shape[1]", "int64", 1),
    ],
    "indexing": [
        ("tf.gather([10,20,30], [2,0])", "int32", [30, 10]),
        (
            "tf.gather(x234, [1,0], axis=1)",
            "float32",
            [[[4.0, 5.0, 6.0, 7.0], [0.0, 1.0, 2.0, 3.0]], [[16.0, 17.0, 18.0, 19.0], [12.0, 13.0, 14.0, 15.0]]],
        ),
        ("tf.gather(x23, 1)", "float32", [3.0, 4.0, 5.0]),
        (
            "tf.gather(x23, [[0,1],[1,0]])",
            "float32",
            [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], [[3.0, 4.0, 5.0], [0.0, 1.0, 2.0]]],
        ),
        (
            "tf.gather(x234, [[0,1],[2,0]], batch_dims=1)",
            "float32",
            [[[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]], [[20.0, 21.0, 22.0, 23.0], [12.0, 13.0, 14.0, 15.0]]],
        ),
        (
            "tf.gather(x234, [[0,1],[2,0]], batch_dims=1, axis=2)",
            "float32",
            [[[0.0, 1.0], [4.0, 5.0], [8.0, 9.0]], [[14.0, 12.0], [18.0, 16.0], [22.0, 20.0]]],
        ),
        ("tf.gather_nd(x234, [[0,1],[1,2]])", "float32", [[4.0, 5.0, 6.0, 7.0], [20.0, 21.0, 22.0, 23.0]]),
        ("tf.gather_nd(x234, [[0,1,3]])", "float32", [7.0]),
        ("tf.gather_nd(x234, [[0],[1]], batch_dims=1)", "float32", [[0.0, 1.0, 2.0, 3.0], [16.0, 17.0, 18.0, 19.0]]),
        ("tf.gather_nd(x23, [1])", "float32", [3.0, 4.0, 5.0]),
        ("tf.boolean_mask([1,2,3], [True,False,True])", "int32", [1, 3]),
        ("tf.boolean_mask(x23, [True,False])", "float32", [[0.0, 1.0, 2.0]]),
        ("tf.boolean_mask(x23, x23 > 2)", "float32", [3.0, 4.0, 5.0]),
        ("tf.boolean_mask(x23, [True,False,True], axis=1)", "float32", [[0.0, 2.0], [3.0, 5.0]]),
        ("tf.where([True,False],[1,2],[3,4])", "int32", [1, 4]),
        ("tf.where([[True,False],[False,True]])", "int64", [[0, 0], [1, 1]]),
        ("tf.where(x23 > 2, x23, 0.)", "float32", [[0.0, 0.0, 0.0], [3.0, 4.0, 5.0]]),
        ("tf.where(x23 > 2, x23, tf.zeros_like(x23))", "float32", [[0.0, 0.0, 0.0], [3.0, 4.0, 5.0]]),
        ("tf.slice(x234, [0,1,0], [1,2,-1])", "float32", [[[4.0, 5.0, 6.0, 7.0], [8.0, 9.0, 10.0, 11.0]]]),
        ("tf.strided_slice([1,2,3,4,5],[0],[5],[2])", "int32", [1, 3, 5]),
        ("tf.tensor_scatter_nd_update(tf.zeros([4]), [[1],[3]], [5.,6.])", "float32", [0.0, 5.0, 0.0, 6.0]),
        ("tf.tensor_scatter_nd_add(tf.ones([4]), [[1],[1]], [5.,6.])", "float32", [1.0, 12.0, 1.0, 1.0]),
        ("tf.tensor_scatter_nd_sub(tf.ones([4]), [[1],[0]], [5.,6.])", "float32", [-5.0, -4.0, 1.0, 1.0]),
        ("tf.tensor_scatter_nd_max(tf.ones([4]), [[1],[0]], [5.,-6.])", "float32", [1.0, 5.0, 1.0, 1.0]),
        ("tf.scatter_nd([[1],[3],[1]], [9,5,1], [5])", "int32", [0, 10, 0, 5, 0]),
        ("tf.searchsorted([1,3,5,7],[0,3,8])", "int32", [0, 1, 4]),
        ("tf.searchsorted([[1,3,5],[2,4,6]],[[3],[5]], side='right')", "int32", [[2], [2]]),
        ("tf.unique([4,1,4,2])[0]", "int32", [4, 1, 2]),
        ("tf.unique([4,1,4,2]).idx", "int32", [0, 1, 0, 2]),
        ("tf.unique_with_counts([4,1,4,2]).count", "int32", [2, 1, 1]),
        ("tf.dynamic_partition([10,20,30,40],[0,1,0,1],2)", "int32", [[10, 30], [20, 40]]),
        ("tf.dynamic_stitch([[0,2],[1,3]],[[10,30],[20,40]])", "int32", [10, 20, 30, 40]),
        ("tf.math.invert_permutation([2,0,1])", "int32", [1, 2, 0]),
    ],
    "reductions": [
        ("tf.reduce_sum(x23)", "float32", 15.0),
        ("tf.reduce_sum(x23, 0)", "float32", [3.0, 5.0, 7.0]),
        ("tf.reduce_sum(x23, axis=[0,1], keepdims=True)", "float32", [[15.0]]),
        ("tf.reduce_sum([1,2,3])", "int32", 6),
        ("tf.reduce_mean(x23)", "float32", 2.5),
        ("tf.reduce_mean(x23, axis=1)", "float32", [1.0, 4.0]),
        ("tf.reduce_mean([1,2,4])", "int32", 2),
        ("tf.reduce_mean(tf.cast([1,2], tf.uint8))", "uint8", 1),
        ("tf.reduce_mean(x23, axis=-1, keepdims=True)", "float32", [[1.0], [4.0]]),
        ("tf.reduce_max(x23)", "float32", 5.0),
        ("tf.reduce_max(x23, -1)", "float32", [2.0, 5.0]),
        ("tf.reduce_min(x23, axis=0)", "float32", [0.0, 1.0, 2.0]),
        ("tf.reduce_prod(x23, 1)", "float32", [0.0, 60.0]),
        ("tf.reduce_all([[True,False],[True,True]], 1)", "bool", [False, True]),
        ("tf.reduce_any([[True,False],[False,False]], axis=1)", "bool", [True, False]),
        ("tf.reduce_logsumexp(x23, axis=1)", "float32", [2.407606, 5.407606]),
        ("tf.math.reduce_std(x23)", "float32", 1.707825),
        ("tf.math.reduce_variance(x23, axis=0)", "float32", [2.25, 2.25, 2.25]),
        ("tf.math.reduce_euclidean_norm(x23, axis=1)", "float32", [2.236068, 7.071068]),
        ("tf.math.count_nonzero([[0,1],[2,0]], axis=0)", "int64", [1, 1]),
        ("tf.math.zero_fraction([0.,1.,0.,2.])", "float32", 0.5),
        ("tf.argmax(y23)", "int64", [0, 0, 1]),
        ("tf.argmax(y23, axis=1)", "int64", [1, 2]),
        ("tf.argmax([1,5,2])", "int64", 1),
        ("tf.argmin(y23, 1, output_type=tf.int32)", "int32", [0, 1]),
        ("tf.math.argmax(y23, axis=-1)", "int64", [1, 2]),
        ("tf.cumsum([1,2,3])", "int32", [1, 3, 6]),
        ("tf.cumsum(x23, axis=1, exclusive=True)", "float32", [[0.0, 0.0, 1.0], [0.0, 3.0, 7.0]]),
        ("tf.cumsum(x23, axis=1, reverse=True)", "float32", [[3.0, 3.0, 2.0], [12.0, 9.0, 5.0]]),
        ("tf.cumsum(x23, axis=1, exclusive=True, reverse=True)", "float32", [[3.0, 2.0, 0.0], [9.0, 5.0, 0.0]]),
        ("tf.math.cumprod(x23, axis=0, exclusive=True)", "float32", [[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]]),
        (
            "tf.math.cumulative_logsumexp(x23, axis=1)",
            "float32",
            [[0.0, 1.313262, 2.407606], [3.0, 4.313262, 5.407606]],
        ),
        ("tf.norm(x23)", "float32", 7.416198),
        ("tf.norm(x23, ord=1)", "float32", 15.0),
        ("tf.norm(x23, axis=1)", "float32", [2.236068, 7.071068]),
        ("tf.norm(x23, ord=np.inf, axis=0)", "float32", [3.0, 4.0, 5.0]),
        ("tf.norm(x23, axis=[0,1])", "float32", 7.416198),
        ("tf.norm(x23, keepdims=True)", "float32", [[7.416198]]),
        ("tf.clip_by_norm([3.,4.], 1.)", "float32", [0.6, 0.8]),
        ("tf.clip_by_norm([0.,0.], 1.)", "float32", [0.0, 0.0]),
        (
            "tf.clip_by_norm(x23, 2., axes=[1])",
            "float32",
            [[0.0, 0.8944272, 1.788854], [0.8485281, 1.131371, 1.414214]],
        ),
        ("tf.clip_by_global_norm([tf.constant([3.]), tf.constant([4.])], 1.)", "float32", [[[0.6], [0.8]], 5.0]),
        ("tf.math.bincount([1,1,3])", "int32", [0, 2, 0, 1]),
        ("tf.math.bincount([1,1,3], minlength=6)", "int32", [0, 2, 0, 1, 0, 0]),
        ("tf.math.bincount([1,1,3], weights=[.5,.5,2.])", "float32", [0.0, 1.0, 0.0, 2.0]),
        (
            "tf.math.confusion_matrix([1,2],[2,2], num_classes=3, weights=[.5,2.], dtype=tf.float32)",
            "float32",
            [[0.0, 0.0, 0.0], [0.0, 0.0, 0.5], [0.0, 0.0, 2.0]],
        ),
        ("tf.math.segment_sum(tf.constant([[1,2],[3,4],[5,6]]), [0,0,1])", "int32", [[4, 6], [5, 6]]),
        ("tf.math.segment_mean(tf.constant([1.,2,3]), [0,0,1])", "float32", [1.5, 3.0]),
        ("tf.math.unsorted_segment_sum(tf.constant([1,2,3]), [1,0,1], num_segments=3)", "int32", [2, 4, 0]),
        ("tf.math.unsorted_segment_max(tf.constant([1,2,3]), [1,0,1], 2)", "int32", [2, 3]),
        ("tf.math.unsorted_segment_mean(tf.constant([1.,2,3]), [1,0,1], 3)", "float32", [2.0, 2.0, 0.0]),
        ("tf.matmul(x23, x23, transpose_b=True)", "float32", [[5.0, 14.0], [14.0, 50.0]]),
        ("tf.tensordot(x23, x23, axes=2)", "float32", 55.0),
        ("tf.tensordot(x23, x23, axes=[[1],[1]])", "float32", [[5.0, 14.0], [14.0, 50.0]]),
        ("tf.tensordot(x23, x23, [1,1])", "float32", [[5.0, 14.0], [14.0, 50.0]]),
        ("tf.einsum('ij,kj->ik', x23, x23)", "float32", [[5.0, 14.0], [14.0, 50.0]]),
        ("tf.math.is_strictly_increasing([1,2,2])", "bool", False),
        ("tf.math.is_non_decreasing([1,2,2])", "bool", True),
    ],
    "elementwise": [
        (
            "tf.clip_by_value(y23, 0.2, 0.8)",
            "float32",
            [[0.5488135, 0.7151893, 0.6027634], [0.5448832, 0.4236548, 0.6458941]],
        ),
        ("tf.clip_by_value([1,5,9], 2, 6)", "int32", [2, 5, 6]),
        ("tf.abs([-1,2])", "int32", [1, 2]),
        ("tf.abs([-1.5])", "float32", [1.5]),
        ("tf.add(1, 2)", "int32", 3),
        ("tf.add(x23, 1)", "float32", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        ("tf.add_n([x23, x23, x23])", "float32", [[0.0, 3.0, 6.0], [9.0, 12.0, 15.0]]),
        ("tf.subtract(x23, [1.,2.,3.])", "float32", [[-1.0, -1.0, -1.0], [2.0, 2.0, 2.0]]),
        ("tf.multiply(2., x23)", "float32", [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]),
        ("tf.divide(x23, 2)", "float32", [[0.0, 0.5, 1.0], [1.5, 2.0, 2.5]]),
        ("tf.divide(3, 2)", "float64", 1.5),
        ("tf.truediv([3,4], 2)", "float64", [1.5, 2.0]),
        ("tf.math.divide_no_nan([1.,2.],[0.,4.])", "float32", [0.0, 0.5]),
        ("tf.math.multiply_no_nan([np.inf,2.],[0.,4.])", "float32", [0.0, 8.0]),
        ("tf.math.reciprocal_no_nan([0.,4.])", "float32", [0.0, 0.25]),
        ("tf.math.floordiv([-7,7], 2)", "int32", [-4, 3]),
        ("tf.math.floormod([-7,7], 3)", "int32", [2, 1]),
        ("tf.math.mod([5.,-5.], 3.)", "float32", [2.0, 1.0]),
        ("tf.pow(x23, 2)", "float32", [[0.0, 1.0, 4.0], [9.0, 16.0, 25.0]]),
        ("tf.pow(2., 3.)", "float32", 8.0),
        ("tf.pow([2,3],[3,2])", "int32", [8, 9]),
        ("tf.sqrt(x23)", "float32", [[0.0, 1.0, 1.414214], [1.732051, 2.0, 2.236068]]),
        ("tf.math.rsqrt(x23)", "float32", [[np.inf, 1.0, 0.7071068], [0.5773503, 0.5, 0.4472136]]),
        ("tf.square([2,3])", "int32", [4, 9]),
        ("tf.exp([0.,1.])", "float32", [1.0, 2.718282]),
        ("tf.math.expm1([0.,1.])", "float32", [0.0, 1.718282]),
        ("tf.math.log([1.,2.])", "float32", [0.0, 0.6931472]),
        ("tf.math.log1p([1.,2.])", "float32", [0.6931472, 1.098612]),
        ("tf.sin([1.])", "float32", [0.841471]),
        ("tf.cos([1.])", "float32", [0.5403023]),
        ("tf.tan([.5])", "float32", [0.5463025]),
        ("tf.tanh([.5])", "float32", [0.4621171]),
        ("tf.sigmoid([.5])", "float32", [0.6224594]),
        ("tf.math.erf([.5])", "float32", [0.5204999]),
        ("tf.acos([.5])", "float32", [1.047198]),
        ("tf.asin([.5])", "float32", [0.5235988]),
        ("tf.atan([.5])", "float32", [0.4636476]),
        ("tf.atan2([.5],[1.])", "float32", [0.4636476]),
        ("tf.sinh([.5])", "float32", [0.5210953]),
        ("tf.cosh([.5])", "float32", [1.127626]),
        ("tf.asinh([.5])", "float32", [0.4812118]),
        ("tf.acosh([1.5])", "float32", [0.9624237]),
        ("tf.atanh([.5])", "float32", [0.5493062]),
        ("tf.sign([-2.,0.,3.])", "float32", [-1.0, 0.0, 1.0]),
        ("tf.round([0.5,1.5,2.4,-0.5])", "float32", [0.0, 2.0, 2.0, 0.0]),
        ("tf.math.rint([0.5,1.5])", "float32", [0.0, 2.0]),
        ("tf.floor([1.7,-1.2])", "float32", [1.0, -2.0]),
        ("tf.math.ceil([1.2,-1.7])", "float32", [2.0, -1.0]),
        ("tf.negative([1,-2])", "int32", [-1, 2]),
        ("tf.maximum([1,5],[3,2])", "int32", [3, 5]),
        ("tf.minimum(x23, 3.)", "float32", [[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]]),
        ("tf.equal([1,2],[1,3])", "bool", [True, False]),
        ("tf.not_equal([1,2],[1,3])", "bool", [False, True]),
        ("tf.greater([1,2], 1)", "bool", [False, True]),
        ("tf.less(x23, 3.)", "bool", [[True, True, True], [False, False, False]]),
        ("tf.greater_equal([1,2],2)", "bool", [False, True]),
        ("tf.less_equal([1,2],1)", "bool", [True, False]),
        ("tf.logical_and([True,False],[True,True])", "bool", [True, False]),
        ("tf.logical_or(True, False)", "bool", True),
        ("tf.logical_not([True])", "bool", [False]),
        ("tf.math.logical_xor(True, True)", "bool", False),
        ("tf.math.is_nan([1., np.nan])", "bool", [False, True]),
        ("tf.math.is_inf([np.inf])", "bool", [True]),
        ("tf.math.is_finite([1.,np.inf])", "bool", [True, False]),
        ("tf.math.squared_difference([1.,2.],[3.,5.])", "float32", [4.0, 9.0]),
        ("tf.math.xlogy([0.,1.],[0.,2.])", "float32", [0.0, 0.6931472]),
        ("tf.math.xdivy([0.,1.],[0.,2.])", "float32", [0.0, 0.5]),
        ("tf.math.polyval([1.,2.,3.], 2.)", "float32", 11.0),
        ("tf.math.lgamma([3.5])", "float32", [1.200974]),
        ("tf.math.digamma([1.5])", "float32", [0.03648996]),
        ("tf.math.softplus([1.])", "float32", [1.313262]),
        ("tf.math.log_sigmoid([1.])", "float32", [-0.3132617]),
        ("tf.math.scalar_mul(2., x23)", "float32", [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]),
        ("tf.math.igamma(2., [1.,3.])", "float32", [0.2642411, 0.8008517]),
        ("tf.math.betainc([1.],[2.],[.5])", "float32", [0.75]),
        ("tf.math.erfinv([.5])", "float32", [0.4769363]),
        ("tf.math.zeta([2.],[1.])", "float32", [1.644934]),
        ("tf.math.polygamma([1.],[2.])", "float32", [0.6449341]),
        ("tf.complex([1.],[2.])", "complex64", [(1 + 2j)]),
        ("tf.math.real(tf.complex([1.],[2.]))", "float32", [1.0]),
        ("tf.math.imag(tf.complex([1.],[2.]))", "float32", [2.0]),
        ("tf.math.conj(tf.complex([1.],[2.]))", "complex64", [(1 - 2j)]),
        ("tf.math.angle(tf.complex([1.],[2.]))", "float32", [1.107149]),
        ("tf.bitwise.bitwise_and([5],[3])", "int32", [1]),
        ("tf.bitwise.bitwise_xor([5],[3])", "int32", [6]),
        ("tf.bitwise.left_shift([1],[3])", "int32", [8]),
    ],
    "neural": [
        ("tf.nn.softsign([1.,-1.])", "float32", [0.5, -0.5]),
        ("tf.math.l2_normalize([3.,4.])", "float32", [0.6, 0.8]),
        (
            "tf.math.l2_normalize(x23, axis=1)",
            "float32",
            [[0.0, 0.4472136, 0.8944272], [0.4242641, 0.5656855, 0.7071068]],
        ),
        ("tf.math.top_k([1.,5.,3.], k=2)", None, [[5.0, 3.0], [1, 2]]),
        ("tf.math.in_top_k([1,0], [[.1,.9],[.2,.8]], 1)", "bool", [True, False]),
        ("tf.nn.relu([-1.,2.])", "float32", [0.0, 2.0]),
        ("tf.nn.relu6([-1.,8.])", "float32", [0.0, 6.0]),
        ("tf.nn.leaky_relu([-1.,2.])", "float32", [-0.2, 2.0]),
        ("tf.nn.elu([-1.])", "float32", [-0.6321205]),
        ("tf.nn.selu([-1.,1.])", "float32", [-1.111331, 1.050701]),
        ("tf.nn.gelu([-1.,1.])", "float32", [-0.1586553, 0.8413447]),
        ("tf.nn.gelu([1.], approximate=True)", "float32", [0.841192]),
        ("tf.nn.silu([1.,-2.])", "float32", [0.7310586, -0.2384058]),
        ("tf.nn.swish([1.])", "float32", [0.7310586]),
        ("tf.nn.crelu([[1.,-2.]])", "float32", [[1.0, 0.0, 0.0, 2.0]]),
        ("tf.nn.softmax(x23)", "float32", [[0.09003057, 0.2447285, 0.6652409], [0.09003057, 0.2447285, 0.6652409]]),
        (
            "tf.nn.softmax(x23, axis=0)",
            "float32",
            [[0.04742587, 0.04742587, 0.04742587], [0.9525741, 0.9525741, 0.9525741]],
        ),
        ("tf.nn.log_softmax(x23)", "float32", [[-2.407606, -1.407606, -0.4076059], [-2.407606, -1.407606, -0.4076059]]),
        ("tf.nn.bias_add(x23, [1.,2.,3.])", "float32", [[1.0, 3.0, 5.0], [4.0, 6.0, 8.0]]),
        (
            "tf.nn.softmax_cross_entropy_with_logits(labels=[[0.,1.,0.],[.5,.25,.25]], logits=x23)",
            "float32",
            [1.407606, 1.657606],
        ),
        ("tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[1,2], logits=x23)", "float32", [1.407606, 0.4076059]),
        (
            "tf.nn.sigmoid_cross_entropy_with_logits(labels=[[0.,1.,0.],[1.,0.,1.]], logits=x23)",
            "float32",
            [[0.6931472, 0.3132617, 2.126928], [0.04858735, 4.01815, 0.006715348]],
        ),
        (
            "tf.nn.weighted_cross_entropy_with_logits([[0.,1.,0.],[1.,0.,1.]], x23, 2.)",
            "float32",
            [[0.6931472, 0.6265234, 2.126928], [0.0971747, 4.01815, 0.0134307]],
        ),
        ("tf.nn.log_poisson_loss([2.,3.],[1.,.5])", "float32", [0.7182817, 0.1487212]),
        ("tf.nn.log_poisson_loss([2.,3.],[1.,.5], compute_full_loss=True)", "float32", [1.370088, 1.912803]),
        ("tf.nn.l2_loss(x23)", "float32", 27.5),
        ("tf.nn.l2_normalize(x23, 1)", "float32", [[0.0, 0.4472136, 0.8944272], [0.4242641, 0.5656855, 0.7071068]]),
        ("tf.nn.moments(x23, [0])", "float32", [[1.5, 2.5, 3.5], [2.25, 2.25, 2.25]]),
        ("tf.nn.moments(x23, axes=[0,1], keepdims=True)", "float32", [[[2.5]], [[2.916667]]]),
        ("tf.nn.embedding_lookup(x23, [1,0,1])", "float32", [[3.0, 4.0, 5.0], [0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]),
        (
            "tf.nn.embedding_lookup(x23, [[1],[0]], max_norm=2.)",
            "float32",
            [[[0.8485281, 1.131371, 1.414214]], [[0.0, 0.8944272, 1.788854]]],
        ),
        (
            "tf.nn.conv2d(im, k33, strides=[1,2,2,1], padding='VALID')",
            "float32",
            [[[[456.6223, 411.8418], [398.7158, 348.86]]]],
        ),
        (
            "tf.nn.conv1d(x234, tf.reshape(tf.range(24.),(3,4,2)), 1, 'SAME')",
            "float32",
            [
                [[504.0, 532.0], [1012.0, 1078.0], [504.0, 564.0]],
                [[1944.0, 2068.0], [2596.0, 2806.0], [1176.0, 1332.0]],
            ],
        ),
        (
            "tf.nn.conv1d(x234, tf.reshape(tf.range(24.),(3,4,2)), stride=2, padding='SAME')",
            "float32",
            [[[504.0, 532.0], [504.0, 564.0]], [[1944.0, 2068.0], [1176.0, 1332.0]]],
        ),
        (
            "tf.nn.max_pool2d(im, 2, 2, 'SAME')",
            "float32",
            [
                [
                    [[39.95793, 44.58865, 48.18314], [47.23344, 46.27983, 41.63099], [38.90784, 43.50061, 48.93092]],
                    [[34.09101, 49.41869, 47.1874], [34.88156, 23.31554, 33.33834], [15.77142, 18.18554, 28.50984]],
                ]
            ],
        ),
        (
            "tf.nn.max_pool(im, 2, 2, 'VALID')",
            "float32",
            [
                [
                    [[39.95793, 44.58865, 48.18314], [47.23344, 46.27983, 41.63099]],
                    [[34.09101, 49.41869, 47.1874], [34.88156, 23.31554, 33.33834]],
                ]
            ],
        ),
        (
            "tf.nn.avg_pool2d(im, 3, 2, 'SAME')",
            "float32",
            [
                [
                    [[25.26982, 31.3445, 31.6435], [24.53446, 23.90922, 20.44134], [22.36951, 18.81123, 29.86789]],
                    [[24.26743, 26.57656, 26.69917], [22.26023, 11.40093, 23.22157], [16.04023, 11.01313, 21.55222]],
                ]
            ],
        ),
        (
            "tf.nn.avg_pool(im, 2, 2, 'VALID')",
            "float32",
            [
                [
                    [[21.73077, 34.81123, 30.2055], [23.30498, 28.02371, 22.18085]],
                    [[24.26743, 26.57656, 26.69917], [22.25663, 10.59117, 21.2056]],
                ]
            ],
        ),
        (
            "tf.nn.max_pool1d(x234, 2, 1, 'SAME')",
            "float32",
            [
                [[4.0, 5.0, 6.0, 7.0], [8.0, 9.0, 10.0, 11.0], [8.0, 9.0, 10.0, 11.0]],
                [[16.0, 17.0, 18.0, 19.0], [20.0, 21.0, 22.0, 23.0], [20.0, 21.0, 22.0, 23.0]],
            ],
        ),
        (
            "tf.nn.pool(im, [2,2], 'AVG', padding='SAME', strides=[2,2])",
            "float32",
            [
                [
                    [[21.73077, 34.81123, 30.2055], [23.30498, 28.02371, 22.18085], [33.66477, 22.22005, 39.90635]],
                    [[24.26743, 26.57656, 26.69917], [22.25663, 10.59117, 21.2056], [11.34028, 14.00733, 23.47305]],
                ]
            ],
        ),
        ("tf.nn.top_k(x23, k=2)", None, [[[2.0, 1.0], [5.0, 4.0]], [[2, 1], [2, 1]]]),
        (
            "tf.nn.depth_to_space(tf.reshape(tf.range(16.),(1,2,2,4)), 2)",
            "float32",
            [
                [
                    [[0.0], [1.0], [4.0], [5.0]],
                    [[2.0], [3.0], [6.0], [7.0]],
                    [[8.0], [9.0], [12.0], [13.0]],
                    [[10.0], [11.0], [14.0], [15.0]],
                ]
            ],
        ),
        (
            "tf.nn.space_to_depth(tf.reshape(tf.range(16.),(1,4,4,1)), 2)",
            "float32",
            [[[[0.0, 1.0, 4.0, 5.0], [2.0, 3.0, 6.0, 7.0]], [[8.0, 9.0, 12.0, 13.0], [10.0, 11.0, 14.0, 15.0]]]],
        ),
        ("tf.nn.in_top_k([1,0], [[.1,.9],[.2,.8]], 1)", "bool", [True, False]),
        ("tf.nn.zero_fraction([0.,1.])", "float32", 0.5),
    ],
    "matrices": [
        ("tf.linalg.global_norm([tf.constant([3.]), tf.constant([4.])])", "float32", 5.0),
        ("tf.linalg.matmul([[1,2]],[[3],[4]])", "int32", [[11]]),
        ("tf.linalg.cross([1.,0,0],[0,1.,0])", "float32", [0.0, 0.0, 1.0]),
        ("tf.linalg.inv([[2.,0.],[1.,4.]])", "float32", [[0.5, 0.0], [-0.125, 0.25]]),
        ("tf.linalg.det([[2.,0.],[1.,4.]])", "float32", 8.0),
        ("tf.linalg.trace(x23)", "float32", 4.0),
        ("tf.linalg.solve([[2.,0.],[1.,4.]], [[2.],[5.]])", "float32", [[1.0], [1.0]]),
        ("tf.linalg.cholesky([[4.,2.],[2.,3.]])", "float32", [[2.0, 0.0], [1.0, 1.414214]]),
        ("tf.linalg.diag([1.,2.])", "float32", [[1.0, 0.0], [0.0, 2.0]]),
        ("tf.linalg.diag([1,2], k=1)", "int32", [[0, 1, 0], [0, 0, 2], [0, 0, 0]]),
        ("tf.linalg.diag_part([[1,2],[3,4]])", "int32", [1, 4]),
        ("tf.linalg.set_diag(tf.ones([2,2]), [5.,6.])", "float32", [[5.0, 1.0], [1.0, 6.0]]),
        ("tf.linalg.band_part(tf.ones([3,3]), -1, 0)", "float32", [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]),
        ("tf.linalg.band_part(tf.ones([3,3]), 0, 1)", "float32", [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]),
        ("tf.linalg.matvec([[1.,2.],[3.,4.]],[1.,1.])", "float32", [3.0, 7.0]),
        (
            "tf.linalg.matrix_transpose(x234)",
            "float32",
            [
                [[0.0, 4.0, 8.0], [1.0, 5.0, 9.0], [2.0, 6.0, 10.0], [3.0, 7.0, 11.0]],
                [[12.0, 16.0, 20.0], [13.0, 17.0, 21.0], [14.0, 18.0, 22.0], [15.0, 19.0, 23.0]],
            ],
        ),
        ("tf.linalg.adjoint(x23)", "float32", [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]),
        ("tf.linalg.svd([[3.,0.],[0.,2.]])[0]", "float32", [3.0, 2.0]),
        ("tf.linalg.eigh([[2.,0.],[0.,3.]])[0]", "float32", [2.0, 3.0]),
        ("tf.linalg.slogdet([[2.,0.],[1.,4.]])", "float32", [1.0, 2.079442]),
        ("tf.linalg.logdet([[4.,2.],[2.,3.]])", "float32", 2.079442),
        ("tf.linalg.lstsq([[1.,1.],[1.,2.],[1.,3.]], [[1.],[2.],[2.]])", "float32", [[0.666666], [0.5000002]]),
        ("tf.linalg.triangular_solve([[2.,0.],[1.,4.]], [[2.],[5.]])", "float32", [[1.0], [1.0]]),
        ("tf.linalg.expm([[0.,1.],[0.,0.]])", "float32", [[1.0, 1.0], [0.0, 1.0]]),
        (
            "tf.linalg.normalize(x23, axis=1)",
            "float32",
            [[[0.0, 0.4472136, 0.8944272], [0.4242641, 0.5656855, 0.7071068]], [[2.236068], [7.071068]]],
        ),
        (
            "tf.linalg.pinv(x23)",
            "float32",
            [[-0.7777777, 0.2777778], [-0.1111111, 0.1111111], [0.5555555, -0.05555556]],
        ),
        (
            "tf.linalg.cholesky_solve(tf.linalg.cholesky([[4.,2.],[2.,3.]]), [[1.],[2.]])",
            "float32",
            [[-0.125], [0.7499999]],
        ),
    ],
    "pictures": [
        (
            "tf.image.resize(im[0], (2,3))",
            "float32",
            [
                [[24.7934, 34.48459, 34.67193], [37.81784, 36.18612, 12.14245], [25.37388, 21.4338, 37.34398]],
                [[24.9341, 31.09528, 26.51438], [23.77307, 13.16341, 22.77981], [14.47359, 12.0112, 22.1925]],
            ],
        ),
        (
            "tf.image.resize(im, [8,2], preserve_aspect_ratio=True)",
            "float32",
            [
                [
                    [[17.13684, 35.30119, 23.50585], [15.01028, 20.45099, 34.14103]],
                    [[23.26743, 19.7985, 26.97633], [18.39021, 9.516039, 20.59181]],
                ]
            ],
        ),
        (
            "tf.image.rgb_to_grayscale(im)",
            "float32",
            [
                [
                    [[38.20616], [31.98236], [36.06059], [6.64149], [42.74253]],
                    [[29.93686], [21.36641], [31.7979], [29.2776], [12.56725]],
                    [[32.63415], [23.23244], [15.99429], [16.93229], [18.63911]],
                    [[36.14532], [11.57881], [18.86489], [9.35639], [9.93657]],
                ]
            ],
        ),
        (
            "tf.image.rgb_to_grayscale(iu)",
            "uint8",
            [
                [[114], [142], [87], [101], [153]],
                [[177], [94], [136], [131], [100]],
                [[193], [126], [178], [107], [68]],
                [[26], [75], [39], [131], [42]],
            ],
        ),
        (
            "tf.image.crop_to_bounding_box(im[0], 1, 1, 2, 3)",
            "float32",
            [
                [[5.913722, 31.99605, 7.167664], [47.23344, 26.09242, 20.7331], [13.22778, 38.71169, 22.80752]],
                [[34.09101, 17.9754, 21.8516], [34.88156, 3.011274, 33.33834], [33.53189, 10.51913, 6.446315]],
            ],
        ),
        (
            "tf.image.central_crop(im[0], 0.5)",
            "float32",
            [
                [[5.913722, 31.99605, 7.167664], [47.23344, 26.09242, 20.7331], [13.22778, 38.71169, 22.80752]],
                [[34.09101, 17.9754, 21.8516], [34.88156, 3.011274, 33.33834], [33.53189, 10.51913, 6.446315]],
            ],
        ),
        ("tf.image.psnr(im/50., im/60., 1.0)", "float32", [20.5316]),
        ("tf.image.total_variation(im)", "float32", [1609.141]),
    ],
    "texts": [
        ('tf.strings.lower("ABC")', "string", b"abc"),
        ('tf.strings.upper(["ab","c"])', "string", [b"AB", b"C"]),
        ('tf.strings.strip(" a ")', "string", b"a"),
        ('tf.strings.length(["ab","é"])', "int32", [2, 2]),
        ('tf.strings.length("é", unit="UTF8_CHAR")', "int32", 1),
        ('tf.strings.substr("hello", 1, 3)', "string", b"ell"),
        ('tf.strings.substr("hello", -3, 2)', "string", b"ll"),
        ('tf.strings.regex_replace(["a1b","22"], "[0-9]", "#")', "string", [b"a#b", b"##"]),
        ('tf.strings.regex_replace("a1b2", "[0-9]", "#", replace_global=False)', "string", b"a#b2"),
        ('tf.strings.regex_replace("ab", "(a)(b)", r"\\2\\1")', "string", b"ba"),
        ('tf.strings.regex_full_match(["ab","b"], "a.*")', "bool", [True, False]),
        ('tf.strings.join(["a","b"], separator="/")', "string", b"a/b"),
        ('tf.strings.join([["a","b"],"c"])', "string", [b"ac", b"bc"]),
        ('tf.strings.reduce_join(["a","b"], separator=" ")', "string", b"a b"),
        ('tf.strings.reduce_join([["a","b"],["c","d"]], axis=1)', "string", [b"ab", b"cd"]),
        ('tf.strings.split("to be or")', "string", [b"to", b"be", b"or"]),
        ('tf.strings.split("a,b,c", ",")', "string", [b"a", b"b", b"c"]),
        ('tf.strings.to_number(["1","2.5"])', "float32", [1.0, 2.5]),
        ('tf.strings.to_number("7", tf.int32)', "int32", 7),
        ("tf.strings.as_string([1,2])", "string", [b"1", b"2"]),
        ("tf.strings.as_string(3.14159, precision=2)", "string", b"3.14"),
        ("tf.strings.as_string(2.5)", "string", b"2.500000"),
        ("tf.strings.as_string([True])", "string", [b"true"]),
        ("tf.strings.as_string(7, width=3, fill='0')", "string", b"007"),
        ('tf.strings.bytes_split("abc")', "string", [b"a", b"b", b"c"]),
        ('tf.strings.unicode_split("aé", "UTF-8")', "string", [b"a", b"\xc3\xa9"]),
        ('tf.strings.unicode_decode("aé", "UTF-8")', "int32", [97, 233]),
    ],
    "control": [
        ("tf.cond(tf.constant(True), lambda: 1., lambda: 2.)", "float64", 1.0),
        ("tf.switch_case(tf.constant(1), [lambda: 1, lambda: 5])", "int64", 5),
        ("tf.case([(tf.constant(False), lambda: 1)], default=lambda: 3)", "int64", 3),
        ("tf.while_loop(lambda i, s: i < 5, lambda i, s: (i + 1, s * 2.), (0, 1.))", None, [5, 32.0]),
        ("tf.while_loop(lambda i: i < 5, lambda i: [i + 2], [tf.constant(0)], maximum_iterations=1)", "int32", [2]),
        ("tf.map_fn(lambda x: x * 2, x23)", "float32", [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]),
        (
            "tf.map_fn(lambda t: t[0] + t[1], (x23, x23), fn_output_signature=tf.float32)",
            "float32",
            [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]],
        ),
        ("tf.vectorized_map(lambda x: x * 2, x23)", "float32", [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]),
        ("tf.scan(lambda a, x: a + x, tf.constant([1.,2.]), initializer=10.)", "float32", [11.0, 13.0]),
    ],
    "dtypes and shapes": [
        ("tf.as_dtype('float32').name", None, "float32"),
        ("tf.float32.is_floating", "bool", True),
        ("tf.int64.is_integer", "bool", True),
        ("tf.bool.name", None, "bool"),
        ("tf.string.name", None, "string"),
        ("tf.as_dtype(np.int32).name", None, "int32"),
        ("tf.float32.max", "float32", 3.402823e38),
        ("tf.uint8.max", "int64", 255),
        ("tf.int32.min", "int64", -2147483648),
        ("tf.float32.size", "int64", 4),
        ("tf.bfloat16.name", None, "bfloat16"),
        ("tf.TensorShape([None,3]).as_list()", None, [None, 3]),
        ("tf.TensorShape([2,3]).num_elements()", "int64", 6),
        ("tf.TensorShape([2,3]).rank", "int64", 2),
        ("tf.TensorShape([2]).concatenate([3]).as_list()", "int64", [2, 3]),
    ],
    "operators": [
        ("x23.get_shape().as_list()", "int64", [2, 3]),
        ("isinstance(x23, tf.Tensor)", "bool", True),
        ("isinstance(tf.Variable(1.), tf.Variable)", "bool", True),
        ("isinstance(x23, tf.Variable)", "bool", False),
        ("x23 + 1", "float32", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        ("x23 * x23", "float32", [[0.0, 1.0, 4.0], [9.0, 16.0, 25.0]]),
        ("1 - x23", "float32", [[1.0, 0.0, -1.0], [-2.0, -3.0, -4.0]]),
        ("x23 / 2", "float32", [[0.0, 0.5, 1.0], [1.5, 2.0, 2.5]]),
        ("x23 // 2", "float32", [[0.0, 0.0, 1.0], [1.0, 2.0, 2.0]]),
        ("x23 % 2", "float32", [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]),
        ("x23 ** 2", "float32", [[0.0, 1.0, 4.0], [9.0, 16.0, 25.0]]),
        ("-x23", "float32", [[0.0, -1.0, -2.0], [-3.0, -4.0, -5.0]]),
        ("x23 @ tf.transpose(x23)", "float32", [[5.0, 14.0], [14.0, 50.0]]),
        ("x23 > 2", "bool", [[False, False, False], [True, True, True]]),
        ("x23[0]", "float32", [0.0, 1.0, 2.0]),
        ("x23[:, 1:]", "float32", [[1.0, 2.0], [4.0, 5.0]]),
        ("x23[..., tf.newaxis]", "float32", [[[0.0], [1.0], [2.0]], [[3.0], [4.0], [5.0]]]),
        ("abs(-x23)", "float32", [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]),
        ("len(x23)", "int64", 2),
        ("[float(v) for v in x23[0]]", "float64", [0.0, 1.0, 2.0]),
        ("bool(x23[0][0] == 0)", "bool", True),
        ("int(tf.constant(3))", "int64", 3),
        ('f"{tf.constant(2.5).numpy():.2f}"', None, "2.50"),
        ('"%f" % tf.constant(2.5)', None, "2.500000"),
    ],
}
"""Expressions, the dtypes and the values that they have in TensorFlow."""


def names() -> dict[str, Any]:
    """Return the tensors that the expressions use."""
    draws = np.random.RandomState(0)
    return {
        "tf": tf,
        "np": np,
        "x23": tf.reshape(tf.range(6.0), (2, 3)),
        "y23": tf.constant(draws.rand(2, 3).astype("float32")),
        "x234": tf.reshape(tf.range(24.0), (2, 3, 4)),
        "im": tf.constant(draws.rand(1, 4, 5, 3).astype("float32") * 50),
        "iu": tf.constant(draws.randint(0, 256, (4, 5, 3)).astype("uint8")),
        "k33": tf.constant(draws.rand(3, 3, 3, 2).astype("float32")),
        "kdw": tf.constant(draws.rand(3, 3, 3, 2).astype("float32")),
    }


def differences(rows: list[Row]) -> list[str]:
    """Return what differs from TensorFlow, one line for each expression."""
    known = names()
    found = [(row[0], difference(eval(row[0], known), *row[1:])) for row in rows]
    return [f"{expression}: {what}" for expression, what in found if what is not None]


def difference(found: Any, dtype: str | None, expected: Any) -> str | None:
    if isinstance(found, list | tuple):
        parts = [difference(part, dtype, values) for part, values in zip(found, expected, strict=True)]
        return next((part for part in parts if part is not None), None)
    array = np.asarray(found, object if isinstance(found, bytes) else None)
    kind = "string" if array.dtype == object else "str" if array.dtype.kind == "U" else str(array.dtype)
    if dtype is not None and HELD.get(kind, kind) != HELD.get(dtype, dtype):
        return f"dtype {kind}, not {dtype}"
    if array.shape != np.shape(expected):
        return f"shape {array.shape}, not {np.shape(expected)}"
    if array.dtype.kind in "OUb":
        return None if array.tolist() == expected else f"{array.tolist()}, not {expected}"
    near = np.allclose(array, expected, rtol=1e-3 if dtype == "float16" else 2e-4, atol=2e-5, equal_nan=True)
    return None if near else f"{array.tolist()}, not {expected}"


@pytest.mark.parametrize("area", VALUES)
def test_values_are_those_of_tensorflow(area: str) -> None:
    assert differences(VALUES[area]) == []


@pytest.mark.parametrize("area", VALUES)
def test_values_are_the_same_in_functions_of_datasets_and_of_numpy(area: str) -> None:
    found: list[str] = []

    def read(element: Any) -> Any:
        found[:] = differences(VALUES[area])
        assert isinstance(tf.reduce_sum(names()["x23"]), np.ndarray)
        return element

    list(Dataset.range(1).map(read))
    assert found == []
