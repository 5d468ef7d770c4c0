from __future__ import annotations

from stratagem.core.spent import LABELS, Spent


def test_what_was_spent_between_two_moments_is_never_less_than_nothing() -> None:
    earlier, later = Spent(input=2.0, computing=5.0, waiting=1.0), Spent(input=3.5, computing=9.0, waiting=0.5)
    assert later.since(earlier) == Spent(input=1.5, computing=4.0)


def test_training_is_what_steps_and_the_time_between_them_take() -> None:
    spent = Spent(starting=9.0, compiling=8.0, input=1.0, copying=1.0, computing=4.0, exchanging=1.0, waiting=2.0)
    spent = spent._replace(between=1.0, saving=7.0)
    assert (spent.total, spent.training) == (34.0, 10.0)


def test_each_part_has_a_label() -> None:
    assert tuple(LABELS) == Spent._fields
