"""Schemes decode what they say, in a closed loop that follows the run."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from benchmarks.compressors import bounded
from benchmarks.compressors.compressor import Compressor
from benchmarks.schemes import catalogue
from benchmarks.schemes.check_n_run import CheckNRun
from benchmarks.schemes.clusters import centres
from benchmarks.schemes.differences import Bounded, Lossless
from benchmarks.schemes.excp import ExCP
from benchmarks.schemes.inshrinkerator import Inshrinkerator, runs_packed, runs_unpacked
from benchmarks.schemes.lc_checkpoint import LCCheckpoint
from benchmarks.schemes.partial import Scar, TopN
from benchmarks.schemes.session import CONTAINER, CodecSession, LccodecSession

PLAIN = Compressor(lambda delta: delta.tobytes(), lambda data, _: np.frombuffer(data, "u4"))


def states(count: int, moments: bool = True) -> list[dict[str, np.ndarray]]:
    """A walk of weights, buffers and moments."""
    random = np.random.default_rng(7)
    shapes = {"a.weight": (40, 50), "a.bias": (40,), "characters.weight": (65, 33)}
    weights = {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    found = []
    for number in range(count):
        state = {f"model/{n}": w.copy() for n, w in weights.items()}
        state["model/count"] = np.array(number)
        for name, shape in shapes.items() if moments else ():
            first = (random.standard_normal(shape) * 1e-3).astype(np.float32)
            first[..., :3] = 0
            state[f"exp_avg/{name}"] = first
            state[f"exp_avg_sq/{name}"] = np.square(first) * np.float32(2)
        found.append(state)
        for name, shape in shapes.items():
            weights[name] += (random.standard_t(3, shape) * 0.01).astype(np.float32)
    return found


def codecs() -> dict[str, object]:
    return {
        "LC-2": LCCheckpoint(2),
        "LC-3": LCCheckpoint(3),
        "SCAR": Scar(1 / 8),
        "TOPN": TopN(1 / 64),
        "CNR-4": CheckNRun(4),
        "CNR-8": CheckNRun(8),
        "Inshrinkerator": Inshrinkerator(16, 0.1, 0.005),
        "no pruning": Inshrinkerator(8, 0.0, 0.01),
        "ExCP": ExCP(),
        "frame": Bounded(bounded.frame, 0.5),
        "zlib": Lossless(PLAIN, True),
    }


@pytest.mark.parametrize("moments", [True, False])
@pytest.mark.parametrize(
    "name", ["LC-2", "LC-3", "SCAR", "TOPN", "CNR-4", "CNR-8", "no pruning", "frame", "zlib"]
)
def test_a_closed_loop_follows_the_run(name: str, moments: bool) -> None:
    walk = states(6, moments)
    session = CodecSession(codecs()[name])
    session.start(walk[0])
    for state in walk[1:]:
        sizes = session.save(state)
        kept = session.restore()
        assert kept.keys() == state.keys()
        assert all(kept[n].dtype == a.dtype and kept[n].shape == a.shape for n, a in state.items())
        assert kept["model/count"] == state["model/count"]
    assert set(sizes) == ({"model", "exp_avg", "exp_avg_sq"} if moments else {"model"})
    key = "model/a.weight"
    off, moved = np.abs(kept[key] - walk[-1][key]).mean(), np.abs(walk[-1][key] - walk[0][key]).mean()
    # Values of unit variance, not differences, are what these few levels stand for.
    assert off < {"CNR-4": 0.2, "CNR-8": 0.02, "no pruning": 0.25}.get(name, moved)


def test_lc_checkpoint_promotes_the_largest_exponents() -> None:
    before, now = states(2, moments=False)
    codec = LCCheckpoint(2)
    kept = codec.decode(codec.encode(now, before), before)
    delta = np.concatenate([(now[n] - before[n]).ravel() for n in kept])
    change = np.concatenate([(kept[n] - before[n]).ravel() for n in kept])
    keys = (delta.view(np.uint32) >> 23).astype(np.int64)
    top = sorted(np.unique(keys), key=lambda k: (-(k & 255), k))[:3]
    assert np.all(change[~np.isin(keys, top)] == 0)
    for key in top:
        members = delta[keys == key]
        assert np.allclose(change[keys == key], (members.max() + members.min()) / 2, rtol=1e-4)


def test_partial_checkpoints_hold_the_farthest_parameters() -> None:
    before, now = states(2)
    for codec, share in ((codecs()["SCAR"], 1 / 8), (codecs()["TOPN"], 1 / 64)):
        streams = codec.encode(now, before)
        kept = codec.decode(streams, before)
        names = [n for n in kept if n.startswith("model/")]
        moved = np.concatenate([np.abs(now[n] - before[n]).ravel() for n in names])
        exact = np.concatenate([(kept[n] == now[n]).ravel() for n in names])
        count = int(moved.size * share)
        assert exact.sum() == count
        assert moved[exact].min() >= moved[~exact].max()
        per_value = 4 + 1 / 8 / share if share == 1 / 8 else 8
        assert len(streams["model"]) == pytest.approx(count * per_value, rel=0.01)


@pytest.mark.parametrize("bits", [4, 8])
def test_check_n_run_is_within_half_a_step_and_skips_rows(bits: int) -> None:
    before, now = states(2, moments=False)
    now["model/a.weight"][5] = before["model/a.weight"][5]
    codec = CheckNRun(bits)
    kept = codec.decode(codec.encode(now, before), before)
    rows = now["model/a.weight"]
    step = (rows.max(axis=1) - rows.min(axis=1)) / ((1 << bits) - 1)
    assert np.all(np.abs(kept["model/a.weight"] - rows) <= step[:, None] * 0.501)
    assert np.array_equal(kept["model/a.weight"][5], rows[5])
    assert np.array_equal(kept["model/a.bias"], now["model/a.bias"])


def test_inshrinkerator_has_three_tiers() -> None:
    walk = states(4)
    codec = codecs()["Inshrinkerator"]
    for state in walk[1:]:  # from the second on, differences of indices
        kept = codec.decode(codec.encode(state, walk[0]), walk[0])
    assert set(kept) == {"model/a.weight", "model/a.bias", "model/characters.weight"}
    got, was = kept["model/a.weight"].ravel(), walk[-1]["model/a.weight"].ravel()
    sensitivity = np.abs(was * walk[-1]["exp_avg/a.weight"].ravel())
    protected = np.argsort(sensitivity)[-10:]
    assert np.allclose(got[protected], was[protected], rtol=2**-8)
    small = np.argsort(np.abs(was))[:190]
    assert np.count_nonzero(got[np.setdiff1d(small, protected)]) == 0
    assert np.unique(np.delete(got, protected)).size <= 17
    assert np.array_equal(kept["model/a.bias"], walk[-1]["model/a.bias"])


def test_excp_prunes_moments_with_their_weights() -> None:
    before, now = states(2)
    codec = ExCP(alpha=np.inf)
    kept = codec.decode(codec.encode(now, before), before)
    for name in ("a.weight", "characters.weight"):
        moved = np.abs(now[f"model/{name}"] - before[f"model/{name}"])
        pruned = moved <= 2.5 * np.median(moved)
        assert np.array_equal(kept[f"model/{name}"][pruned], before[f"model/{name}"][pruned])
        first, second = kept[f"exp_avg/{name}"], kept[f"exp_avg_sq/{name}"]
        assert not first[pruned].any() and not second[pruned].any() and first.any()
        assert np.array_equal(first != 0, second != 0)
        assert np.unique(first).size <= 16


def test_a_bound_is_kept_in_units_of_the_movement() -> None:
    before, now = states(2)
    codec = codecs()["frame"]
    kept = codec.decode(codec.encode(now, before), before)
    delta = now["model/a.weight"] - before["model/a.weight"]
    off = np.abs(kept["model/a.weight"] - now["model/a.weight"])
    assert 0.4 * np.sqrt(np.mean(delta**2)) < off.max() <= 0.501 * np.sqrt(np.mean(delta**2))
    assert min(a.min() for n, a in kept.items() if n.startswith("exp_avg_sq/")) > 0


@given(st.lists(st.sampled_from([0, 0, 0, 0, 1, 2, 253]), min_size=1, max_size=300))
def test_run_lengths_come_back(symbols: list[int]) -> None:
    packed = runs_packed(np.array(symbols, np.uint8))
    assert runs_unpacked(packed, len(symbols)).tolist() == symbols


def test_a_run_of_zeros_takes_the_digits_of_its_length() -> None:
    assert runs_packed(np.zeros(1000, np.uint8)).size == 9
    assert runs_packed(np.array([0, 3], np.uint8)).tolist() == [0, 4]


def test_centres_lie_in_the_clusters() -> None:
    random = np.random.default_rng(0)
    middles = np.array([-4.0, -1.0, 0.5, 3.0])
    values = (middles[random.integers(4, size=4000)] + 0.02 * random.standard_normal(4000)).astype(np.float32)
    found = centres(values, 4)
    assert np.allclose(found, middles, rtol=0.02)
    assert centres(values[:2], 15).size == 2


def test_peers_are_lossless_or_named() -> None:
    before, now = states(2)
    found, absent = catalogue.catalogue()
    names = {scheme.name for scheme in found}
    assert set(lccodec.POLICIES) <= names
    assert names.isdisjoint(absent)
    assert {*catalogue.BOUNDED, *catalogue.LOSSLESS} <= names | set(absent)
    exclusive = Lossless(PLAIN, True)
    integer = Lossless(PLAIN, False)
    for codec in (exclusive, integer):
        kept = codec.decode(codec.encode(now, before), before)
        assert all(a.tobytes() == now[n].tobytes() for n, a in kept.items())


def test_a_chain_of_lccodec_is_one_as_a_user_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lccodec, "Chain", partial(lccodec.Chain, keyframe_every=3))
    session = LccodecSession("lossless")
    walk = states(7)
    sizes, keyframes = [session.start(walk[0])], [session.is_keyframe]
    for state in walk[1:]:
        roles = session.save(state)
        assert set(roles) == {"model", "exp_avg", "exp_avg_sq", CONTAINER} and min(roles.values()) > 0
        sizes.append(sum(roles.values()))
        keyframes.append(session.is_keyframe)
    kept = session.restore()
    assert all(np.array_equal(kept[n], a) for n, a in walk[-1].items())
    infos = [session.chain.info(step) for step in session.chain.steps]
    assert [info.file_bytes for info in infos] == sizes
    assert [info.parent is None for info in infos] == keyframes == [n % 4 == 0 for n in range(7)]
    assert [restore.deltas for restore in session.restores()] == [0, 1, 3]
    session.close()
    assert not session.directory.exists()


def test_first_states_are_counted_as_they_are_stored() -> None:
    walk = states(3)
    raw = sum(array.nbytes for array in walk[0].values())
    for name, codec in codecs().items():
        session = CodecSession(codec)
        first = session.start(walk[0])
        assert session.is_keyframe
        assert (first == raw) == (not codec.codes_first) or name == "zlib"  # which compresses nothing
        kept = session.restore()
        if name not in {"CNR-4", "CNR-8", "Inshrinkerator", "no pruning"}:
            assert all(kept[n].tobytes() == a.tobytes() for n, a in walk[0].items())


def test_lc_checkpoint_stores_full_snapshots_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LCCheckpoint, "snapshot_every", 3)
    walk = states(5)
    session = CodecSession(LCCheckpoint(2))
    raw = session.start(walk[0])
    sizes = []
    for state in walk[1:]:
        sizes.append(sum(session.save(state).values()))
        exact = all(session.restore()[n].tobytes() == a.tobytes() for n, a in state.items())
        assert session.is_keyframe == exact == (sizes[-1] == raw)
    assert [size == raw for size in sizes] == [False, False, True, False]
