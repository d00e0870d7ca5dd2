"""What rollbacks set aside in a bucket, and what one that was cut short leaves."""

from __future__ import annotations

import lccodec
from lccodec.chain.store.bucket.store import connect
from lccodec.container.system import Address

from ....support.walks import assert_same, walk


def test_what_was_cut_short_is_not_there_and_goes_later(place: str) -> None:
    with lccodec.Chain(place, "lossless") as chain:
        for step, state in enumerate(walk(4)):
            chain.save(step, state)
        store = connect(Address.of(place))
        backend, shelf = store._backend, store.shelf()
        name = shelf.add(1, [*store.checkpoints().values()][2:], [3])
        assert [each.steps for each in chain.rolled_back] == [(2, 3)]
        backend.delete([f".rolled-back/{name}/complete"])
        assert chain.rolled_back == []
        gone = chain.rollback(1)
        assert gone.name == "0002-to-1"
        kept = {each.key.split("/")[1] for each in backend.objects(".rolled-back")}
        assert kept == {gone.name}
        chain.undo_rollback()
        assert_same(chain.restore(3), walk(4)[3])
        assert backend.objects(".rolled-back") == []


def test_a_rollback_that_was_cut_short_is_finished(place: str) -> None:
    with lccodec.Chain(place, "lossless") as chain:
        for step, state in enumerate(walk(4)):
            chain.save(step, state)
        store = connect(Address.of(place))
        name = store.shelf().add(1, [*store.checkpoints().values()][2:], [])
        with store.locked() as held:
            held.remove(["000000000003.lcc.h5"])
        assert chain.rollback(1).name == name  # what was set aside stays together
        assert [each.steps for each in chain.rolled_back] == [(2, 3)]
        assert chain.steps == [0, 1]
