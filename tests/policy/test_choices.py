"""What a chain says of every array: its role and why, what codes it, and whether that is lossy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lccodec import (
    ArgumentError,
    Balanced,
    Chain,
    LccodecWarning,
    Lossless,
    Policy,
    Triggered,
    UniformDeadzone,
)
from lccodec.chain.save.plan import ArrayPlan
from lccodec.policy.balanced import STEPS
from lccodec.policy.record import Record, read_record
from lccodec.policy.roles import Assignment

from ..support.chains import HistoryChain
from ..support.walks import walk


def state(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "fc": {"weight": rng.standard_normal((70, 80)), "steps": rng.integers(0, 9, 3)},
        "opt": {
            "exp_avg": {"weight": rng.standard_normal((70, 80))},
            "exp_avg_sq": {"weight": rng.random((70, 80))},
            "strange": rng.random(5600),
        },
        "table": rng.standard_normal(5600),
        "norm": rng.standard_normal(5600),
    }


class Adapter:
    """Knows of one array what no name tells."""

    def to_numpy(
        self, state: Any, metadata: Mapping[str, str] | None = None, /
    ) -> tuple[Any, dict[str, str]]:
        return state, dict(metadata or {})

    def from_numpy(self, state: Any, metadata: Mapping[str, str], name: str = "", /) -> Any:  # noqa: ARG002
        return state

    def roles(self, state: Any, /) -> Mapping[str, Assignment]:  # noqa: ARG002
        return {
            "norm": Assignment("weight", "nn.Parameter"),
            "fc/weight": Assignment("weight", "nn.Parameter"),
        }


def test_a_plan_says_of_every_array_what_becomes_of_it(tmp_path: Path) -> None:
    chain = HistoryChain(tmp_path / "run", policy="lc-3", roles={"table": "other"}, adapter=Adapter())
    plan = chain.plan(state())
    names = "fc/weight fc/steps opt/exp_avg/weight opt/exp_avg_sq/weight opt/strange table norm"
    assert " ".join(array.name for array in plan) == names
    first = ("fc/weight", "float64", (70, 80), 44800, "weight", "nn.Parameter", "ExponentBuckets()")
    assert plan[0] == ArrayPlan(*first, lossy=True, frame=0)
    told = {array.name: (array.role, array.why, array.lossy) for array in plan}
    assert told["fc/steps"] == ("other", "nothing names it", False)
    assert told["opt/exp_avg/weight"][::2] == ("first_moment", True)
    assert told["opt/exp_avg_sq/weight"][::2] == ("second_moment", True)
    assert told["opt/strange"] == ("other", "no moment known to be safe", False)
    assert told["table"] == ("other", "given as 'table'", False)
    assert told["norm"] == ("weight", "nn.Parameter", True)
    assert plan.parent is None
    assert {array.stored for array in plan} == {"whole"}
    assert not (tmp_path / "run").exists()  # nothing is written
    assert not any(array.lossy for array in HistoryChain(tmp_path / "run", policy="lossless").plan(state()))


def test_what_was_planned_is_what_is_stored(tmp_path: Path) -> None:
    with Chain(tmp_path, policy="lc-3", roles={"table": "weight"}, adapter=Adapter()) as chain:
        plan = chain.plan(state())
        chain.save(0, state())
        chain.save(1, state(1))
        infos = [chain.info(step) for step in (0, 1)]
    stored, planned = (
        [(a.name, a.role, a.quantizer, a.lossy) for a in some] for some in (infos[1].arrays, plan)
    )
    assert stored == planned
    assert not infos[0].lossy
    assert [array.role for array in infos[0].arrays] == [array.role for array in plan]
    # Who reads the file has no adapter: what it knew is recorded, where names do not tell it.
    why = {array.name: array.why for array in infos[1].arrays}
    assert why["fc/weight"] == "a parameter of the optimizer"
    assert why["norm"] == "from a framework's structures when it was saved"
    assert read_record(infos[1].policy) == Record(chain.policy, {"table": "weight"}, {6: "weight"})


def test_a_plan_is_what_the_next_save_does(tmp_path: Path) -> None:
    quiet = Triggered(UniformDeadzone(relative_step=1.0), threshold=0.5)
    policy = Balanced(
        "all of it",
        {**STEPS, "weight": UniformDeadzone(max_error=0.5)},
        patterns={"table": quiet, "norm": UniformDeadzone(relative_step=2.0)},
        error=0.5,
        smallest=0,
    )
    first, second = state(), state(1)
    second["opt"]["strange"] = first["opt"]["strange"]
    second["table"] = first["table"] * 1.01
    with HistoryChain(tmp_path, policy) as chain:
        chain.save(0, first)
    with HistoryChain(tmp_path) as chain:
        for plan in (chain.plan(second), chain.plan(second)):  # planning changes nothing
            stored = {array.name: (array.stored, array.frame) for array in plan}
            assert plan.parent == 0
            assert (stored["opt/strange"], stored["table"]) == (("unchanged", None), ("waits", None))
            assert (
                stored["fc/weight"][0] == stored["opt/exp_avg_sq/weight"][0] == stored["norm"][0] == "delta"
            )
            assert stored["opt/exp_avg/weight"][0] == "whole"  # absolute: it has no reference
        planned = {array.name: array for array in plan}
        assert planned["fc/weight"].guarantee == "error at most 0.5"
        assert planned["fc/steps"].guarantee == "exact"
        assert planned["norm"].quantizer.startswith("UniformDeadzone(relative_step=")
        assert planned["norm"].quantizer != "UniformDeadzone(relative_step=2.0)"  # chosen for the target
        chain.save(1, second)
        for array, info in zip(plan, chain.info(1).arrays, strict=True):
            assert (info.method == "unchanged") == (array.frame is None)
            assert info.relative == (array.stored == "delta")
        assert list(plan)[1:3] == list(plan[1:3]) == [plan[1], plan[2]]


def test_a_record_takes_no_room_where_names_tell_all(tmp_path: Path) -> None:
    with Chain(tmp_path, policy="lc-3") as chain:
        chain.save(0, walk(1)[0])
        assert chain.info().policy == "lc-3"
    with Chain(tmp_path / "given", "lc-3", roles={"layer/weight": "weight", "fixed": "other"}) as chain:
        chain.save(0, walk(1)[0])
        assert chain.info().policy == "lc-3"
        assert chain.roles == {"layer/weight": "weight", "fixed": "other"}


@pytest.mark.parametrize(
    "recorded",
    [
        *({"policy": "lc-9"}, "lc-9", None, 3),
        *({"policy": "lc-3", "known": known} for known in ({"weight": ["a"]}, {"x": [1]})),
        *({"policy": "lc-3", "roles": ["x"]}, {"policy": "lc-3", "newest": "best"}),
    ],
)
def test_info_of_a_record_that_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Any
) -> None:
    with HistoryChain(tmp_path) as chain:
        with monkeypatch.context() as patch:
            patch.setattr("lccodec.chain.save.saver.write_record", lambda _: recorded)
            chain.save(0, walk(1)[0])
        info = chain.info()
    assert info.policy == recorded
    assert {array.quantizer for array in info.arrays} == {"unknown"}
    assert info.arrays[0].role == "weight"


def test_the_first_save_of_a_chain_says_in_one_line_what_is_lossy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        caplog.clear()
        return found

    for _ in range(2):  # a chain that goes on says nothing more
        with Chain(tmp_path / "a", policy="lc-3") as chain:
            first = not chain.steps
            for step in range(3):
                chain.save(step if first else step + 3, state(step))
        messages = told()
        assert len(messages) == first
        if first:
            lossy = sum(array.nbytes for array in chain.info().arrays if array.lossy)
            exact = sum(array.nbytes for array in chain.info().arrays) - lossy
            assert (
                f"the policy 'lc-3' is lossy for {lossy} bytes of arrays and exact for {exact}" in messages[0]
            )
            assert "'opt/strange', 'table', 'norm'" in messages[0]
            assert "`lccodec plan`" in messages[0]
            assert "\n" not in messages[0]
    with Chain(tmp_path / "a", policy="balanced") as chain, pytest.warns(LccodecWarning):
        chain.save(6, state())  # another policy may lose something else
    assert len(told()) == 1
    with Chain(tmp_path / "b", policy="lossless") as chain:  # where all is exact there is nothing to say
        chain.save(0, state())
    assert told() == []
    with Chain(
        tmp_path / "c", "lc-3", roles={"table": "other", "norm": "weight", "*/strange": "other"}
    ) as chain:
        chain.save(0, state())
    assert "among them" not in "".join(told())


def test_a_typing_error_is_told_at_the_first_save(tmp_path: Path) -> None:
    chain = HistoryChain(tmp_path / "a", roles={"fc/wieght": "weight"})
    with pytest.raises(ArgumentError, match=r"roles: .*\n.*'fc/wieght' \(is it 'fc/weight'"):
        chain.save(0, state())
    chain = HistoryChain(tmp_path / "b", Policy("mine", patterns={"*/exp_avgs": Lossless()}))
    with pytest.raises(ArgumentError, match=r"policy 'mine': .*\n.*'\*/exp_avgs' \(is it 'opt/exp_avg"):
        chain.save(0, state())
    assert not list(tmp_path.iterdir())
    policy = Policy("mine", {"weight": UniformDeadzone(step=1.0)}, patterns={"*/exp_avg/*": Lossless()})
    with Chain(tmp_path / "c", policy, roles={"opt/str*": "weight"}) as chain:
        chain.save(0, state())
        chain.save(1, {"epoch": 1})  # an array that is not there any more is no typing error
        assert chain.steps == [0, 1]
    with HistoryChain(tmp_path / "c") as chain:
        chain.save(2, {"fc": {"weight": np.ones(9)}})
