"""Ranks of the next world: who is in it, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from stratagem.elastic.world import Member


def first_members(waiting: Sequence[Member], wanted: int, most: int) -> tuple[Member, ...]:
    """Return the members of the first world. Those of one host stand together, in the order in which they have joined.

    Args:
        waiting: All members, in the order in which they have joined.
        wanted: How many workers the run was started with. Spares take part only as far as workers are missing.
        most: The largest number of workers.
    """
    workers = [member for member in waiting if not member.is_spare][:most]
    spares = [member for member in waiting if member.is_spare]
    chosen = {member.number for member in [*workers, *spares[: max(0, wanted - len(workers))]]}
    hosts = list(dict.fromkeys(member.host for member in waiting if member.number in chosen))
    return tuple(sorted((m for m in waiting if m.number in chosen), key=lambda member: hosts.index(member.host)))


def next_members(
    old: Sequence[Member], gone: Collection[int], waiting: Sequence[Member], wanted: int, most: int
) -> tuple[Member, ...]:
    """Return the members of the world after `old`. Those who stay keep their order.

    A waiting member takes the place of one that is gone: one of the same host before others, a spare before a worker.
    Places without a successor close up. Then spares fill the world up to the wanted number, workers up to the largest;
    each stands behind the last member of its host, or at the end.

    Args:
        old: The members of the world that ends, in the order of ranks.
        gone: The numbers of those who are not in the next one.
        waiting: Members in no world, in the order in which they have joined.
        wanted: How many workers the run was started with.
        most: The largest number of workers.
    """
    rest = list(waiting)
    placed: list[Member] = []
    for member in old:
        if member.number not in gone:
            placed.append(member)
            continue
        # `min` takes the first of equals: who has waited longest.
        heir = min(rest, key=lambda each: (not each.is_spare, each.host != member.host), default=None)
        if heir is not None:
            rest.remove(heir)
            placed.append(heir)
    for newcomer in rest:
        if len(placed) < (wanted if newcomer.is_spare else most):
            beside = [index for index, member in enumerate(placed) if member.host == newcomer.host]
            placed.insert(beside[-1] + 1 if beside else len(placed), newcomer)
    return tuple(placed)
