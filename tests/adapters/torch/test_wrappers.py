"""Wrappers of tensors: what a file says about them makes only what the program allows."""

import dataclasses
import json
import sys
from typing import Any, NamedTuple

import pytest
import torch
from torch.serialization import safe_globals
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

from lccodec.adapters import torch as adapter
from lccodec.errors import ArgumentError, FormatError, LccodecWarning

from ...support.torch_states import assert_same


class Pair(NamedTuple):
    low: int
    high: float


@dataclasses.dataclass
class Layout:
    name: str
    pairs: list[Pair]
    size: torch.Size
    made: int = dataclasses.field(default=7, init=False)


class Scaled(torch.Tensor):
    """A wrapper of codes and scales with a layout, that computes with what the codes mean."""

    @staticmethod
    def __new__(cls, codes, scale, layout):
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=scale.dtype)

    def __init__(self, codes, scale, layout):
        self.codes, self.scale, self.layout_note = codes, scale, layout

    def __tensor_flatten__(self):
        return ["codes", "scale"], {"layout": self.layout_note}

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        assert sorted(inner) == ["codes", "scale"]
        return cls(inner["codes"], inner["scale"], context["layout"])

    def __repr__(self):
        return "Scaled()"

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name == "copy_":  # as some classes do: what is copied is rounded anew
            args[0].codes.copy_(args[1].codes // 2 * 2)
            return args[0]
        assert name in ("detach", "clone", "alias")
        found = tree_map_only(cls, lambda each: cls(each.codes, each.scale, each.layout_note), args[0])
        return return_and_correct_aliasing(function, args, kwargs, found)


ALLOWED = [Scaled, Layout, Pair]


def layout(name: str = "rows") -> Layout:
    return Layout(name, [Pair(1, 0.5)], torch.Size([3]))


def scaled(start: int = 0, note: Any = None) -> Scaled:
    codes = torch.arange(start, start + 6, dtype=torch.uint8).reshape(2, 3)
    return Scaled(codes, torch.tensor([0.5, 0.25]), layout() if note is None else note)


def same(left: Scaled, right: Scaled) -> bool:
    return (
        type(left) is type(right)
        and left.layout_note == right.layout_note
        and torch.equal(left.codes, right.codes)
        and torch.equal(left.scale, right.scale)
    )


def test_what_a_wrapper_says_about_itself_comes_back():
    with safe_globals(ALLOWED):
        found = adapter.load(adapter.save({"w": scaled()}))["w"]
    assert same(found, scaled())
    assert type(found.layout_note.pairs[0]) is Pair
    assert type(found.layout_note.size) is torch.Size


def test_a_wrapper_in_a_wrapper():
    inner = [scaled(0), scaled(1)]
    with safe_globals([*ALLOWED, TwoTensor]):
        found = adapter.load(adapter.save({"w": TwoTensor(*inner)}))["w"]
    assert type(found) is TwoTensor
    assert same(found.a, inner[0])
    assert same(found.b, inner[1])


def test_layout_in_memory_is_kept():
    strided = TwoTensor(*(torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1) for _ in range(2)))
    with safe_globals([TwoTensor]):
        found = adapter.load(adapter.save({"w": strided}))["w"]
    assert found.stride() == found.a.stride() == strided.stride() == (1, 12, 4)
    assert torch.equal(found.a, strided.a)


@pytest.mark.parametrize(
    "allowed", [[], [Scaled], [Scaled, Layout]], ids=["none", "the class", "not the pair"]
)
def test_what_is_not_allowed_is_a_dict_of_tensors_until_the_target_allows_it(allowed):
    with safe_globals(allowed), pytest.warns(LccodecWarning, match="is no class that this program allows"):
        state = adapter.load(adapter.save({"model": {"w": scaled(3)}}))
    assert_same({key: state["model"]["w"][key] for key in ("codes", "scale")},
                {"codes": scaled(3).codes, "scale": scaled().scale})  # fmt: skip
    target = {"model": {"w": scaled()}}
    adapter.load_into(target, state)
    assert same(target["model"]["w"], scaled(3))
    assert same(adapter.load_into([scaled()], [state["model"]["w"]])[0], scaled(3))
    for other, message in [
        (scaled(0, layout("columns")), "made with .*'rows'.*, where the target has .*'columns'"),
        (TwoTensor(torch.zeros(2, 3), torch.zeros(2, 3)), "a .*Scaled, where the target has a .*TwoTensor"),
        (torch.zeros(2, 3), "no tensor, where the target has float32"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            adapter.load_into({"model": {"w": other}}, state)


def test_a_module_gets_the_codes_as_they_are():
    module = torch.nn.Module()
    module.w = torch.nn.Parameter(scaled(), requires_grad=False)
    with safe_globals(ALLOWED):
        adapter.load_into(module, adapter.load(adapter.save({"w": scaled(5)})))
    assert same(module.w.detach(), scaled(5))  # its copy_ makes them even


def test_tied_wrappers_are_stored_once_and_scales_are_exact():
    tensor = scaled()
    state = {"a": tensor, "b": tensor, "plain": torch.nn.Parameter(torch.ones(2, 3))}
    plain, _ = adapter.to_numpy(state)
    assert plain["a"]["codes"] is plain["b"]["codes"]
    found = adapter.roles(state)
    assert (found["a/scale"].role, found["b/codes"].role, found["plain"].role) == ("other", "other", "weight")
    module = torch.nn.Module()
    module.w, module.v = torch.nn.Parameter(tensor), torch.nn.Parameter(torch.ones(1))
    assert adapter.roles_of(module) == {"v": "weight"}


def changed(state: dict[str, Any], **about: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The arrays and the note of a saved state, in which a wrapper says something else."""
    plain, note = adapter.to_numpy(state)
    plain["w"][".wrapper"] |= about
    return plain, note


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"size": (2, 4)}, "is noted as tensor subclass but is not one"),
        ({"size": ("2", "3")}, "is noted as tensor subclass"),
        ({"size": [2, 3]}, "is noted as tensor subclass"),
        ({"stride": (1, 2)}, "is noted as tensor subclass"),
        ({"order": {"codes": [0, 0]}}, "is noted as tensor subclass"),
        ({"order": {"nothing": [0]}}, "is noted as tensor subclass"),
        ({"context": {}}, "is noted as tensor subclass"),
        ({"class": 3}, "is noted as tensor subclass"),
    ],
    ids=str,
)
def test_what_a_file_says_must_fit(about, message):
    with safe_globals(ALLOWED), pytest.raises(FormatError, match=message):
        adapter.from_numpy(*changed({"w": scaled()}, **about))


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "antigravity.Tensor",
        "torch.distributed.tensor.DTensor",
        "torch.Tensor",
        f"{__name__}.Layout",
    ],
)
def test_nothing_is_imported_or_called_because_a_file_names_it(name):
    with safe_globals(ALLOWED), pytest.warns(LccodecWarning, match="is no class that this program allows"):
        found = adapter.from_numpy(*changed({"w": scaled()}, **{"class": name}))["w"]
    assert isinstance(found, dict)
    assert "antigravity" not in sys.modules


def test_fields_that_a_class_does_not_have_and_a_note_without_a_wrapper():
    plain, note = adapter.to_numpy({"w": scaled()})
    plain["w"][".wrapper"]["context"]["layout"]["fields"]["more"] = 1
    with safe_globals(ALLOWED), pytest.raises(FormatError, match="is noted as instance but is not one"):
        adapter.from_numpy(plain, note)
    with pytest.raises(FormatError, match="is noted as tensor subclass but is not one"):
        adapter.from_numpy({"w": {}}, {"lccodec.types": json.dumps({"tensor subclass": ["w"]})})


def test_a_class_that_moved_in_its_package_is_found():
    with safe_globals(ALLOWED):
        plain, note = changed({"w": scaled()}, **{"class": f"{__name__.partition('.')[0]}.elsewhere.Scaled"})
        assert same(adapter.from_numpy(plain, note)["w"], scaled())
