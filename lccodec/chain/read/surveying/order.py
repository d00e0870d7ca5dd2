"""The order of a walk through a run, in which parents come before their children.

Checkpoints that are not interpolated come depth first, the child with the most descendants last.
What is interpolated between two of them follows the second one. At most log2(n) parents of n files
wait for their other children. By rising step, more parents may wait.

Source: SPEC 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...store.store import Store


def listed_parents(store: Store, steps: Mapping[int, str]) -> dict[int, tuple[int, ...]]:
    """Return the parents of each step, as named; none if one is not there, or may not be one."""
    found = {step: store.parents_of(name) for step, name in steps.items()}
    spans = {step: above for step, above in found.items() if len(above) == 2}
    for step, above in found.items():
        if len(above) == 2:
            low, high = above
            held = [spans[p] for p in above if p in spans]
            fits = low < step < high and all(span[0] <= low and high <= span[1] for span in held)
        else:
            fits = all(p < step and p not in spans for p in above)
        if not fits or not all(p in found for p in above):
            found[step] = ()
    return found


def rising_order(steps: Mapping[int, str], parents: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the steps so that each comes as soon as it is due by its number, after its parents."""
    order: dict[int, None] = {}
    for step in steps:
        left = [step]
        while left:
            if all(above in order for above in parents[left[-1]]):
                order[left.pop()] = None
            else:
                left += [above for above in parents[left[-1]] if above not in order]
    return list(order)


def depth_first(steps: Mapping[int, str], parents: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the steps in an order in which few parents wait."""
    sizes = dict.fromkeys(steps, 1)
    children: dict[int, list[int]] = {}
    spans = {step: above[0] - above[1] for step, above in parents.items() if len(above) == 2}
    for step in reversed(list(steps)):  # parents of deltas have lower steps
        if len(parents[step]) == 1:
            sizes[parents[step][0]] += sizes[step]
            children.setdefault(parents[step][0], []).append(step)
    order: list[int] = []
    stack = [step for step in reversed(list(steps)) if not parents[step]]
    while stack:
        step = stack.pop()
        order.append(step)
        stack += sorted(children.get(step, ()), key=lambda child: (sizes[child], child), reverse=True)
    place = {step: index for index, step in enumerate(order)}
    between: dict[int, list[int]] = {}
    for step in sorted(spans, key=spans.__getitem__):  # wide spans first: they may be parents of the others
        place[step] = max(place[above] for above in parents[step])
        between.setdefault(place[step], []).append(step)
    return [each for index, step in enumerate(order) for each in (step, *between.get(index, ()))]
