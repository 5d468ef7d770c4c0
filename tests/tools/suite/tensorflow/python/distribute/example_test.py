"""A file as TensorFlow's tests of strategies are written."""

import os

from absl.testing import parameterized
from tensorflow.python.distribute import combinations, strategy_combinations, values
from tensorflow.python.eager import context, def_function, test
from tensorflow.python.ops import math_ops, variables


class ExampleTest(test.TestCase, parameterized.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.start = 1.0

    @combinations.generate(
        combinations.combine(distribution=strategy_combinations.strategies_minus_tpu, mode=["graph", "eager"])
    )
    def test_sums(self, distribution) -> None:
        with distribution.scope():
            v = variables.Variable(self.start, aggregation=variables.VariableAggregation.SUM)
        distribution.run(def_function.function(lambda: v.assign_add(1.0)))
        self.assertAllEqual(self.start + distribution.num_replicas_in_sync, v.numpy())

    def test_fails(self) -> None:
        self.assertAllEqual(5.0, math_ops.square(2.0))

    def test_private(self) -> None:
        values.DistributedDelegate([1.0])

    def test_private_attribute(self) -> None:
        self.assertTrue(context.executing_eagerly())
        variables.Variable(1.0)._packed_variable

    def test_process_ends(self) -> None:
        os._exit(3)

    @combinations.generate(
        combinations.combine(
            distribution=[strategy_combinations.tpu_strategy, strategy_combinations.multi_worker_mirrored_2x1_cpu]
        )
    )
    def test_workers(self, distribution) -> None:
        self.assertEqual(2, distribution.num_replicas_in_sync)


@combinations.generate(combinations.combine(distribution=[strategy_combinations.mirrored_strategy_with_two_cpus]))
class ClassTest(test.TestCase):
    def test_replicas(self, distribution) -> None:
        self.assertEqual(2, distribution.num_replicas_in_sync)
