"""The package reads bytes as spec/decoder does, which was written from the text alone."""

import base64
import importlib
import json
import random
import shutil
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lccodec
from lccodec.chain.life.compact import rewrite
from lccodec.chain.store.directory import DirectoryStore
from lccodec.element_types import components
from lccodec.frame.decode import decode_components
from lccodec.frame.encode import TAIL
from lccodec.frame.header import FrameHeader, parse_header
from lccodec.quantizers.clusters import Clusters

from ..support.damage import flip
from ..support.profiles import examples
from ..support.strategies import ALL_DTYPES, STATES, Pair, array_and_reference, installed, random_array
from ..support.vectors import SPEC, VECTORS, Entry, beside, by_kind, each, entries
from ..support.walks import save_all

ROOT = Path(__file__).parents[2]
ENTRIES = entries()
VALID = [entry for entry in ENTRIES if entry.get("sha256")]
INVALID = [entry for entry in ENTRIES if "rule" in entry]
FRAMES, CHECKPOINTS, BUNDLES, PARITY = by_kind(VALID)
#: Bundles with an exact file, for each row of LCC-EXA-04. A directory has no root to compare with.
NEWEST = [e for e in ENTRIES if "newest-" in e["name"] and e["name"] != "LCC-BUN-07-newest-root"]
QUANTIZERS = st.one_of(
    st.just(lccodec.Lossless()),
    st.builds(lccodec.ExponentBuckets, st.integers(1, 8)),
    st.builds(lambda bound: lccodec.UniformDeadzone(max_error=bound), st.sampled_from([1e-3, 0.02, 1.0])),
    st.builds(lccodec.LogSteps, st.sampled_from([0.5, 3.0])),
    st.builds(Clusters, st.integers(2, 40)),
    st.builds(lccodec.Smooth, st.sampled_from([1e-9, 1e-3, 0.5]), conserve=st.sampled_from([None, "sum"])),
)
POLICIES = ["lossless", "lc-3", "balanced", "small"]
TYPES = installed(["bfloat16", "complex64", "int16", "bool"])
MUTATIONS = 10_000
MANIFESTS = 2_000
INDICES = 600
MAX_DECODED = 1 << 16  # of a mutation that is decoded: the second decoder takes its time

#: Pairs of rules, lccodec's first, that a frame may be refused by where the text leaves open which
#: of them goes first. There are none: section 12 gives an order to all of them.
OPEN_ORDERS: frozenset[tuple[str, str]] = frozenset()

#: What mutations write into manifests.
VALUES = [0, 1, 2, -1, None, True, 1.5, 2**53, 65_536, 10**4_000, "", "l", "t", "0" * 64, "A" * 22]
VALUES += [[], {}, [0], ["l"], ["t", None], ["x"], [1, "A" * 22], {"f": "1.0"}, {"f": "1"}, {"b": "AA=="}]

Outcome = tuple[str, list[tuple[int, ...]], bytes] | str


@pytest.fixture(scope="module", name="decoder")
def _decoder() -> Iterator[ModuleType]:
    with beside("decoder", SPEC) as decoder:
        yield decoder


def little(bits: np.ndarray) -> bytes:
    return bits.astype(bits.dtype.newbyteorder("<")).tobytes()


def read(entry: Entry, what: str = "file") -> bytes | None:
    return (VECTORS / entry[what]).read_bytes() if entry[what] else None


def told(state: Any) -> dict[str, Any]:
    """What a state of either decoder holds, as the vectors' expected values say it."""
    scalars: list[Any] = []
    arrays: list[dict[str, Any]] = []
    numbers: dict[int, int] = {}

    def array(node: Any, path: list[str]) -> int:
        if id(node) in numbers:  # in another place before
            return numbers[id(node)]
        if isinstance(node, np.ndarray):
            kind, bits = components(node)
            dtype, shape, data = kind.name, node.shape, little(bits)
        else:
            dtype, shape, data = node
        name = "/".join(key.replace("~", "~0").replace("/", "~1") for key in path)
        arrays.append({"name": name, "dtype": dtype, "shape": [*shape], "sha256": sha256(data).hexdigest()})
        return numbers.setdefault(id(node), len(numbers))

    def walk(node: Any, path: list[str]) -> Any:
        if hasattr(node, "dtype"):
            return array(node, path)
        if isinstance(node, dict):
            return {key: walk(child, [*path, key]) for key, child in node.items()}
        if isinstance(node, list | tuple):
            form = "l" if isinstance(node, list) else "t"
            return [form, *(walk(child, [*path, str(place)]) for place, child in enumerate(node))]
        if isinstance(node, float):
            node = {"f": repr(node)}
        elif isinstance(node, bytes):
            node = {"b": base64.b64encode(node).decode()}
        scalars.append(node)
        return None

    tree = walk(state, [])
    return {"tree": tree, "scalars": scalars, "arrays": arrays}


def text(document: dict[str, Any]) -> str:
    """JSON, so that the order of keys counts, and booleans are no integers."""
    return json.dumps(document)


def text_of(state: Any) -> str:
    """The same of a state of either decoder."""
    return text(told(state))


def header_of(frame: bytes) -> FrameHeader:
    return parse_header(frame, behind=TAIL.size)


def first(frame: bytes, reference: bytes | None) -> Outcome:
    """What lccodec makes of a frame."""
    try:
        header = header_of(frame)
        base = None
        if header.relative:
            base = np.frombuffer(reference or b"", header.kind.bits.newbyteorder("<"))
            base = base.astype(header.kind.bits)
        return header.kind.name, [*header.shapes], little(decode_components(frame, base))
    except lccodec.DataError as error:
        return error.rule


def second(decoder: ModuleType, frame: bytes, reference: bytes | None) -> Outcome:
    """What the second decoder makes of it."""
    try:
        found: Outcome = decoder.decode_frame(frame, reference)
    except decoder.Refused as error:
        return str(error.rule)
    return found


# --- valid bytes ----------------------------------------------------------------------------------


@each(FRAMES)
def test_vector_of_a_frame(decoder: ModuleType, entry: Entry) -> None:
    dtype, shapes, data = decoder.decode_frame(read(entry), read(entry, "reference"))
    assert (dtype, [list(shape) for shape in shapes]) == (entry["dtype"], entry["shapes"])
    assert sha256(data).hexdigest() == entry["sha256"]


@each(CHECKPOINTS)
def test_vector_of_a_checkpoint(decoder: ModuleType, entry: Entry) -> None:
    expected = read(entry, "expected")
    assert sha256(expected).hexdigest() == entry["sha256"]
    assert text_of(decoder.read_checkpoint(VECTORS / entry["file"])) == text(json.loads(expected))


@each(BUNDLES)
def test_vector_of_a_bundle(decoder: ModuleType, entry: Entry) -> None:
    path, expected = VECTORS / entry["file"], json.loads(read(entry, "expected") or b"")
    for name, state in expected.items():
        if name == "newest":
            assert text_of(decoder.read_bundle(path)) == text(state)
        elif name != list(expected)[-2] or "exact" not in entry["description"]:
            assert text_of(decoder.read_bundle(path, int(name))) == text(state)


def test_vectors_of_parity(decoder: ModuleType, tmp_path: Path) -> None:
    """The second decoder mends as many files as there are parity files, and any blocks."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in PARITY:
        groups.setdefault(entry["name"][:16], []).append(entry)
    assert len(groups) >= 4
    for name, some in groups.items():
        place = tmp_path / name
        place.mkdir()
        named, files = some[0]["members"], [VECTORS / file for file in some[0]["files"]]
        for path, own in zip(files, named, strict=True):
            (place / own).parent.mkdir(exist_ok=True)
            shutil.copy(path, place / own)
        for entry in some:
            shutil.copy(VECTORS / entry["file"], place)
        group, _ = decoder.read_parity(place / Path(some[0]["file"]).name)
        lost = named[: len(some)] if group.aligned else []
        for own in lost:
            (place / own).unlink()
        if not lost:  # a byte of a block of each of the first columns
            flip(place / named[0], 7)
        found = decoder.mend(place)
        assert found == {own: path.read_bytes() for path, own in zip(files, named, strict=True)}


def test_there_are_vectors() -> None:
    assert len(FRAMES) > 80
    assert len(CHECKPOINTS) > 5


@pytest.mark.parametrize("name", ALL_DTYPES)
def test_larger_frames_of_the_encoder(decoder: ModuleType, name: str) -> None:
    """Matrices of 3,000 elements; some rows move more than others, so that streams are classed."""
    reference = random_array(name, (60, 50), 1, special=0.002)
    active = np.random.default_rng(2).random((60, 50)) < np.repeat([0.03, 0.6], 30)[:, None]
    array = np.where(active, random_array(name, (60, 50), 3, special=0.01), reference)
    bound = lccodec.UniformDeadzone(max_error=0.3)
    schemes = (lccodec.Lossless(), lccodec.ExponentBuckets(3), bound, lccodec.LogSteps(1.0), Clusters())
    for quantizer in schemes if array.dtype.kind not in "biu" else schemes[:1]:
        for before in (None, reference):
            frame = lccodec.encode(array, quantizer, before, effort="high")
            base = None if before is None else little(components(before)[1])
            found = first(frame, base)
            assert not isinstance(found, str)
            assert found == second(decoder, frame, base)


@examples(3)  # they are small
@given(array_and_reference(), QUANTIZERS, st.sampled_from(["normal", "high"]))
def test_frames_of_the_encoder(decoder: ModuleType, arrays: Pair, quantizer: Any, effort: Any) -> None:
    array, reference = arrays
    frame = lccodec.encode(array, quantizer, reference, effort=effort)
    base = None if reference is None else little(components(reference)[1])
    found = first(frame, base)
    assert not isinstance(found, str)
    assert found == second(decoder, frame, base)
    assert found[1] == [array.shape]
    if isinstance(quantizer, lccodec.Lossless):
        assert found[2] == little(components(array)[1])


@given(STATES)
def test_files_of_any_state(
    decoder: ModuleType, tmp_path_factory: pytest.TempPathFactory, state: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.lcc.h5"
    path.write_bytes(lccodec.save(state))
    assert text_of(decoder.read_checkpoint(path)) == text_of(state)


def walk(steps: int) -> Iterator[dict[str, Any]]:
    """Yield states like Adam's, with small arrays of many types; the tree changes once."""
    rng = np.random.default_rng(0)
    weight = [rng.normal(0, 0.05, shape) for shape in ((30, 50), (7,), (), (3, 4, 5), (0, 2))]
    moment = [np.exp(rng.normal(-9, 1, array.shape)) for array in weight]
    shared = np.arange(12.0).reshape(3, 4)
    for step in range(steps):
        weight = [array + rng.normal(0, 1e-3, array.shape) for array in weight]
        moment = [array * np.exp(rng.normal(0, 0.05, array.shape)) for array in moment]
        state = {
            "model": {f"layer/{i}": [array.astype(np.float32)] for i, array in enumerate(weight)},
            "half": tuple(array.astype(np.float16) for array in weight),
            "adam": {
                "exp_avg": [(array * rng.normal()).astype(np.float32) for array in weight],
                "exp_avg_sq": [array.astype(np.float32) for array in moment],
            },
            "any": [random_array(name, (40,), step) for name in TYPES],
            "tied": {"": shared, "~": (shared, None)},
            "scalars": [step, step / 3, True, "ü", b"\0", float("inf"), [], {}, ()],
        }
        yield state if step < 3 else {"new": np.full(9, step, np.uint8), **state}


@pytest.mark.parametrize("policy", POLICIES)
def test_chains(decoder: ModuleType, tmp_path: Path, policy: str) -> None:
    seen, runs = set(), False
    roles = dict.fromkeys(["model/*", "half/*", "any/*"], "weight")
    with lccodec.Chain(tmp_path, policy, roles=roles, keyframe_every=4) as chain:
        save_all(chain, walk(6))
        parents = [chain.info(step).parent for step in range(6)]
        for step in range(6):
            path = tmp_path / f"{step:012d}.lcc.h5"
            assert text_of(decoder.read_checkpoint(path)) == text_of(lccodec.load_file(path, dtype="bits"))
            manifest = decoder.files.load(decoder.files.Place(path)).manifest
            runs |= len(set(manifest["arrays"]) - {0}) < len(manifest["arrays"]) - manifest["arrays"].count(0)
            seen |= {(array.method, array.relative) for array in chain.info(step).arrays}
    assert runs
    assert parents[0] is None
    assert parents.count(None) >= 2
    assert ("planes", True) in seen
    assert policy == "lossless" or ("codebook", True) in seen
    assert ("copy", False) in seen


def test_the_newest_state(decoder: ModuleType, tmp_path: Path) -> None:
    """Both take it from the exact file, or from the history where that is of another checkpoint."""
    states = list(walk(3))
    roles = dict.fromkeys(["model/*"], "weight")
    with lccodec.Chain(tmp_path, "lc-3", roles=roles, newest="exact") as chain:
        save_all(chain, states[:2])
        older = (tmp_path / "exact.lcc.h5").read_bytes()
        chain.save(2, states[2])

    def newest() -> str:
        with warnings.catch_warnings(action="ignore", category=lccodec.LccodecWarning):
            found = text_of(lccodec.Chain(tmp_path).restore(dtype="bits"))
        assert text_of(decoder.read_newest(tmp_path)) == found
        return found

    exact, history = (text_of(chain.restore(dtype="bits", exact=exact)) for exact in (True, False))
    assert newest() == exact != history
    path, last = tmp_path / "exact.lcc.h5", tmp_path / "000000000002.lcc.h5"
    sound = path.read_bytes()
    for data in (older, sound[:-1], b"", last.read_bytes(), sound[:1500] + b"!" + sound[1501:]):
        path.write_bytes(data)
        assert newest() == history
    path.write_bytes(sound)
    rewrite(DirectoryStore(tmp_path), 2, None)  # the exact file names the root of the one before
    rewrite(DirectoryStore(tmp_path), 1, None)
    assert newest() == exact
    path.write_bytes(older)
    assert newest() == history
    path.write_bytes(sound)
    last.write_bytes(last.read_bytes()[:-1])
    assert newest() == exact
    for checkpoint in tmp_path.glob("0*.lcc.h5"):
        checkpoint.unlink()
    assert newest() == exact


# --- broken bytes ---------------------------------------------------------------------------------


def sealed(frame: bytes) -> bytes:
    return frame[:-4] + zlib.crc32(frame[:-4]).to_bytes(4, "little")


def fitted(frame: bytes, reference: bytes | None) -> bytes | None:
    """A reference of the length that a frame asks for, made of the original frame's reference."""
    header = header_of(frame)
    source = reference or bytes(range(251))
    fitted = (source * (header.nbytes // len(source) + 1))[: header.nbytes]
    return bytes(value & 1 for value in fitted) if header.kind.kind == "b" else fitted


@each(NEWEST)
def test_the_newest_state_of_a_directory(decoder: ModuleType, tmp_path: Path, entry: Entry) -> None:
    """The files of a bundle in a directory have the newest state that they have in the bundle."""
    data = (VECTORS / entry["file"]).read_bytes()
    checkpoints, exact = decoder.bundles.read_index(VECTORS / entry["file"])
    places = {f"{step:012d}.lcc.h5": place for step, (place, _) in checkpoints.items()}
    for name, place in {**places, "exact.lcc.h5": exact[0], "x.lcc.h5": exact[0]}.items():
        (tmp_path / name).write_bytes(data[place.start : place.start + place.size])
    newest = json.loads(read(entry, "expected") or b"")["newest"]
    if "rule" in newest:
        with pytest.raises(decoder.Refused, match=newest["rule"]):
            decoder.read_newest(tmp_path)
        return
    assert told(decoder.read_newest(tmp_path)) == newest
    for name in places:
        (tmp_path / name).unlink()
    if entry["name"].partition("newest-")[2] in ("damaged", "damaged-head", "no-member"):
        with pytest.raises(decoder.Refused):
            decoder.read_newest(tmp_path)
    else:
        expected = text_of(decoder.read_checkpoint(tmp_path / "x.lcc.h5"))
        assert text_of(decoder.read_newest(tmp_path)) == expected


def test_a_step_that_only_the_exact_file_has(decoder: ModuleType, tmp_path: Path) -> None:
    def files_of(name: str) -> list[tuple[bytes, str]]:
        bundle = (VECTORS / "valid" / name).read_bytes()
        checkpoints, exact = decoder.bundles.read_index(VECTORS / "valid" / name)
        data = [bundle[p.start : p.start + p.size] for p, _ in (*checkpoints.values(), exact)]
        roots = [base64.urlsafe_b64encode(root).decode() for _, root in (*checkpoints.values(), exact)]
        return [(own, root.rstrip("=")) for own, root in zip(data, roots, strict=True)]

    first, exact = files_of("newest-newer.lcc")
    _, second, _ = files_of("newest-older.lcc")
    damaged = (exact[0][:20] + bytes([exact[0][20] ^ 1]) + exact[0][21:], exact[1])
    path, magic = tmp_path / "x.lcc", b"LCCBNDL\x1a"
    for (data, root), rule in (
        (exact, None),
        (damaged, "LCC-CHN-02"),
        ((exact[0], first[1]), "LCC-BUN-07"),
        (second, "LCC-CHN-02"),  # a checkpoint in the place of the exact file
    ):
        index = {"checkpoints": [[1, len(first[0]), first[1]]], "exact": [len(data), root]}
        listed = json.dumps(index, separators=(",", ":")).encode()
        head = magic + struct.pack("<HHI2Q", 1, 0, 0, len(first[0] + data), len(listed))
        root_of = sha256(magic + listed + head).digest()
        path.write_bytes(magic + first[0] + data + listed + head + root_of)
        if rule is None:
            assert text_of(decoder.read_bundle(path, 2)) == text_of(decoder.read_bundle(path))
        else:
            with pytest.raises(decoder.Refused, match=rule):
                decoder.read_bundle(path, 2)


@pytest.mark.slow
def test_mutations(decoder: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both decode a broken frame to the same, or both refuse it, and by the same rule."""
    monkeypatch.syspath_prepend(str(ROOT / "fuzz"))
    mutate = importlib.import_module("mutation").mutate
    parents = [(entry["name"], read(entry), read(entry, "reference")) for entry in FRAMES]
    parents = [parent for parent in parents if len(parent[1]) < 3_000]
    others = [data for _, data, _ in parents]
    tokens = [bytes([form, value]) for form in range(6) for value in (0, 1, 2, 4, 255)]
    tokens += [bytes(4), b"\xff" * 8]
    rng = random.Random(0)
    decoded, rules, differences = 0, set(), []
    for number in range(MUTATIONS):
        name, data, reference = rng.choice(parents)
        frame = sealed(mutate(data, others, tokens, rng))
        base = None
        try:
            header = header_of(frame)
        except lccodec.DataError:
            pass
        else:
            if header.nbytes > MAX_DECODED and (header.relative or header.nbytes <= 65_536 * len(frame)):
                continue
            base = fitted(frame, reference) if header.relative else None
        found, other = first(frame, base), second(decoder, frame, base)
        where = f"mutation {number} of {name}: {frame.hex()}"
        if isinstance(found, str) and isinstance(other, str):
            rules.add(found)
            if found != other and (found, other) not in OPEN_ORDERS:
                differences.append((found, other, where))
        else:
            decoded += 1
            assert found == other, where
    assert differences == []
    assert decoded > 20
    assert len(rules) > 25


@each(INVALID)
def test_invalid_vector(decoder: ModuleType, entry: Entry) -> None:
    """Both refuse it by the same rule; what is for a validator to see, a decoder may decode."""
    try:
        if entry["kind"] == "frame":
            decoder.decode_frame(read(entry), read(entry, "reference"))
        elif entry["kind"] == "bundle":
            path = VECTORS / entry["file"]
            for step in [None, *decoder.bundles.read_index(path)[0]]:
                decoder.read_bundle(path, step)
        elif entry["kind"] == "parity":
            decoder.read_parity(VECTORS / entry["file"], entry["named"])
        else:
            decoder.read_checkpoint(VECTORS / entry["file"])
    except decoder.Refused as error:
        assert error.rule == entry["rule"]
    else:
        assert entry["reported_by"] == "validator"


def mutated(document: Any, rng: random.Random) -> None:
    """Change, add or take away a value somewhere in a JSON document."""
    places = []

    def visit(node: Any) -> None:
        for key in [*node] if isinstance(node, dict) else range(len(node)):
            places.append((node, key))
            if isinstance(node[key], dict | list):
                visit(node[key])

    visit(document)
    node, key = rng.choice(places)
    kind = rng.random()
    if kind < 0.2:
        del node[key]
    elif kind < 0.3 and isinstance(node, list):
        node.insert(key, rng.choice(VALUES))
    elif kind < 0.3:
        node["new"] = rng.choice(VALUES)
    else:
        node[key] = rng.choice(VALUES)


def outcome(read_state: Callable[[], Any], refused: type[Exception] = lccodec.DataError) -> str:
    """The text of a state, or the rule that one of the decoders refuses it by."""
    try:
        return text_of(read_state())
    except lccodec.ChainError:
        return "LCC-CHN-02"
    except refused as error:
        return str(error.rule)


@pytest.mark.slow
def test_mutations_of_manifests(decoder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of checkpoint files whose root is right."""
    monkeypatch.syspath_prepend(str(ROOT / "fuzz"))
    target = importlib.import_module("target_checkpoint")
    for entry in CHECKPOINTS:
        (tmp_path / Path(entry["file"]).name).write_bytes(read(entry))
    path = tmp_path / "mutation.lcc.h5"  # beside the parents of all
    rng = random.Random(0)
    decoded, rules, differences = 0, set(), []
    for _ in range(MANIFESTS):
        payload, manifest = target.parts(read(rng.choice(CHECKPOINTS)))
        document = json.loads(manifest)
        mutated(document, rng)
        manifest = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
        path.write_bytes(target.assemble(manifest, payload))
        found = outcome(lambda: lccodec.load_file(path, dtype="bits"))
        other = outcome(lambda: decoder.read_checkpoint(path), decoder.Refused)
        if found.startswith("LCC-") and other.startswith("LCC-"):
            rules.add(found)
            # A frame cut elsewhere has another digest. The package looks at headers before it reads
            # frames.
            if found != other != "LCC-MAN-08":
                differences.append((found, other, manifest))
        else:
            decoded += 1
            assert found == other, manifest
    assert differences == []
    assert decoded > 20
    assert len(rules) > 15


@pytest.mark.slow
def test_mutations_of_indices(decoder: ModuleType, tmp_path: Path) -> None:
    """The same of bundles whose root is right, and of which one entry or member is another."""
    path, rng = tmp_path / "mutation.lcc", random.Random(0)
    decoded, rules, differences = 0, set(), []
    bundles = [read(entry) or b"" for entry in BUNDLES]

    def opened(step: int | None) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lccodec.LccodecWarning)
            with lccodec.open(path, step=step, exact=step is None) as file:
                return file.state(dtype="bits")

    for _ in range(INDICES):
        data = rng.choice(bundles)
        files, length = struct.unpack_from("<2Q", data, len(data) - 48)
        document = json.loads(data[8 + files : 8 + files + length])
        if rng.random() < 0.9:
            mutated(document, rng)
        index = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
        trailer = data[-64:-48] + struct.pack("<2Q", files, len(index))
        root = sha256(data[:8] + index + trailer).digest()
        path.write_bytes(data[: 8 + files] + index + trailer + root)
        for step in (None, 10, 110, 140, 141):
            found = outcome(partial(opened, step))
            other = outcome(partial(decoder.read_bundle, path, step), decoder.Refused)
            rules.add(found[:10])
            decoded += found[:4] != "LCC-"
            if found != other:
                differences.append((step, found[:50], other[:50], index))
    assert differences == []
    assert decoded > 20
    assert {"LCC-BUN-05", "LCC-BUN-06", "LCC-BUN-07", "LCC-CHN-02"} <= rules


def test_a_reference_lifts_the_limit_of_expansion(decoder: ModuleType) -> None:
    """LCC-LIM-03 is about frames without a reference."""
    array = np.arange(450_000, dtype=np.float64)
    frame = lccodec.encode(array, lccodec.Lossless(), array)
    assert array.nbytes > 65_536 * len(frame)
    found = first(frame, little(array))
    assert found == second(decoder, frame, little(array)) == ("float64", [array.shape], little(array))


def changed(name: str, changes: dict[int, int], end: int | None = None) -> bytes:
    data = bytearray((VECTORS / "valid" / f"{name}.lcf").read_bytes())
    for place, value in changes.items():
        data[place] = value
    return sealed(bytes(data[:end]))


@pytest.mark.parametrize(
    ("frame", "rule"),
    [
        # The block begins at 20: form, columns (u16), classes, bounds (2), cells (2 u32), levels of
        # the rows.
        (changed("planes-classed-column", {29: 0xFF, 34: 0x11}), "LCC-STR-01"),
        (changed("planes-classed-column", {29: 0xFF}), "LCC-STR-07"),
        (changed("planes-classed-column", {25: 0, 16: 6}), "LCC-STR-07"),
        # Packed in packed in packed, at depth 4 a classed stream that ends in its columns.
        (changed("planes-packed-nested", {26: 5}), "LCC-STR-07"),
        # More extents than there may be elements of, and nothing behind them.
        (sealed(b"LC\1\2\x0b\0\2\x16" + b"\xff" * 20), "LCC-FRM-02"),
        (sealed(b"LC\1\2\x0b\0\2\x16" + b"\xff" * 28), "LCC-LIM-01"),
    ],
)
def test_what_stands_first_is_refused_first(decoder: ModuleType, frame: bytes, rule: str) -> None:
    assert first(frame, None) == second(decoder, frame, None) == rule
