"""What files declare of their arrays: coordinates, values that stand for nothing, and limits.

The conventions are those of CF and the NetCDF Users Guide (``_FillValue``, ``missing_value``,
``valid_range``, ``bounds``, ``coordinates``, ``axis``, packed numbers), UGRID (nodes and
connectivity), HDF5 (dimension scales) and NeXus (``axes``). A state carries what its file declares
in its entry `ENTRY`, so that every save of it knows. What is declared is obeyed:

- Coordinates and what belongs to them are exact: two files whose times are off by a second have no
  time in common.
- A fill value is exact, and no part of the range.
- Numbers within a valid range stay within it.

What a user says of an array by its name, as a pattern of the policy or a role, goes before.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..constants import ElementType
from ..quantizers.base import Lossless, Quantizer
from .policy import Candidate, Declaration, Policy
from .roles import GIVEN, Assignment, Role

#: The entry of a state that holds what an HDF5 file has besides its arrays.
ENTRY: Final = "lccodec.hdf5"
#: The path of the declarations in it, which are JSON in a scalar.
DECLARED: Final = (ENTRY, "declared")

_FILLS: Final = ("_FillValue", "missing_value", "fill_value")
_LIMITS: Final = ("valid_range", "valid_min", "valid_max")
#: Attributes that name arrays which are coordinates, or belong to them.
_NAMING: Final = {
    "coordinates": "a coordinate of",
    "bounds": "the bounds of",
    "climatology": "the bounds of",
    "nodes": "a node of",
    "node_coordinates": "a node of",
    "edge_coordinates": "a coordinate of",
    "face_coordinates": "a coordinate of",
    "volume_coordinates": "a coordinate of",
    "axes": "an axis of",
}
_CONNECTIVITY: Final = "_connectivity"  # the end of such an attribute, of UGRID
_AXES: Final = frozenset(
    [
        *("latitude", "longitude", "time", "forecast_reference_time", "forecast_period"),
        *("projection_x_coordinate", "projection_y_coordinate", "grid_latitude", "grid_longitude"),
        *("atmosphere_sigma_coordinate", "atmosphere_hybrid_sigma_pressure_coordinate"),
        *("atmosphere_hybrid_height_coordinate", "ocean_sigma_coordinate", "ocean_s_coordinate"),
        *("model_level_number", "region", "realization"),
    ]
)
_DEGREES: Final = re.compile(r"degrees?_?(?:north|east|n|e)", re.IGNORECASE)
_SINCE: Final = re.compile(r"\s*\w+\s+since\s+\S", re.IGNORECASE)
_MAX_VALUES: Final = 8  # of an attribute: fill values are few


def declarations(
    attributes: Mapping[str, Mapping[str, Any]],
    arrays: Collection[str],
    dimensions: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Declaration]:
    """Return what is declared of arrays, by path.

    `attributes` are those of groups and arrays by path: strings, numbers or arrays of these.
    `dimensions` has the names of an array's axes where they are known: an array with the name of
    its only axis is a coordinate.
    """
    named = dict(_named(attributes, arrays))
    found = {}
    for path in arrays:
        own = attributes.get(path, {})
        axes = (dimensions or {}).get(path)
        reason = named.get(path) or _coordinate(own)
        if reason is None and axes is not None and list(axes) == [path.rpartition("/")[2]]:
            reason = "a coordinate"
        fills = sorted({value for key in _FILLS for value in _numbers(own.get(key))})
        low, high = _limits(own)
        told = [key for key in (*_FILLS, *_LIMITS) if own.get(key) is not None]
        if reason is not None:
            found[path] = Declaration(reason, exact=True)
        elif fills or low is not None or high is not None:
            found[path] = Declaration(f"declares {', '.join(told)}", False, tuple(fills), low, high)
        elif "scale_factor" in own or "add_offset" in own:
            found[path] = Declaration("declares packed numbers")
    return found


def _named(attributes: Mapping[str, Mapping[str, Any]], arrays: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the arrays that attributes of others name as coordinates, and why."""
    there = frozenset(arrays)
    for path, own in attributes.items():
        group = path.rpartition("/")[0] if path in there else path
        for key, value in own.items():
            why = _NAMING.get(key, "the connectivity of" if key.endswith(_CONNECTIVITY) else None)
            if why is None or (key == "axes" and path in there):
                continue
            texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
            for name in (
                part for text in texts if isinstance(text, str) for part in re.split(r"[\s:,]+", text)
            ):
                place = _resolved(name, group, there)
                if place is not None and place != path:
                    yield place, f"{why} {path or 'the file'}"


def _resolved(name: str, group: str, arrays: Collection[str]) -> str | None:
    """Return the path of an array that a name stands for, in a group or the nearest above it."""
    if name.startswith("/"):
        return name[1:] if name[1:] in arrays else None
    while True:
        place = f"{group}/{name}" if group else name
        if place in arrays:
            return place
        if not group:
            return None
        group = group.rpartition("/")[0]


def _coordinate(own: Mapping[str, Any]) -> str | None:
    """Return why an array is a coordinate by its own attributes; None if it is not."""

    def text(key: str) -> str:
        value = own.get(key)
        return value if isinstance(value, str) else ""

    if text("CLASS") == "DIMENSION_SCALE":
        return "a dimension scale"
    if "axis" in own:
        return "an axis"
    if text("bounds") or text("climatology"):
        return "a coordinate with bounds"
    if text("positive").lower() in ("up", "down"):
        return "a vertical coordinate"
    if "cf_role" in own or "_CoordinateAxisType" in own:
        return "a coordinate"
    if text("standard_name") in _AXES or "formula_terms" in own:
        return f"the coordinate {text('standard_name')}".rstrip()
    if _DEGREES.fullmatch(text("units")) or _SINCE.match(text("units")) or "calendar" in own:
        return f"a coordinate in {text('units')}".rstrip()
    return None


def _numbers(value: Any) -> list[float]:
    """Return the finite numbers in an attribute."""
    array = np.asarray(value if value is not None else ())
    if array.dtype.kind not in "iuf" or not 0 < array.size <= _MAX_VALUES:
        return []
    return [number for number in np.ravel(array).astype(np.float64).tolist() if math.isfinite(number)]


def _limits(own: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the least and the largest valid number, where they are declared and in order."""
    both = _numbers(own.get("valid_range"))
    low, high = both if len(both) == 2 else (None, None)
    low = next(iter(_numbers(own.get("valid_min"))), low)
    high = next(iter(_numbers(own.get("valid_max"))), high)
    return (None, None) if low is not None and high is not None and low > high else (low, high)


def write(found: Mapping[str, Declaration]) -> str:
    """Return declarations as text; `parse` reads it."""
    plain = {
        name: [each.why, each.exact, list(each.fills), each.minimum, each.maximum]
        for name, each in found.items()
    }
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def parse(text: Any) -> dict[str, Declaration]:
    """Return the declarations in a text that is not trusted; none if it is not one of `write`."""
    try:
        return {name: _parsed(*each) for name, each in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _parsed(why: Any, exact: Any, fills: Any, minimum: Any, maximum: Any) -> Declaration:
    numbers = [float(number) for number in fills]
    limits = [None if limit is None else float(limit) for limit in (minimum, maximum)]
    if not all(math.isfinite(number) for number in (*numbers, *filter(None, limits))):
        raise ValueError("not finite")
    return Declaration(str(why), exact is True, tuple(numbers), *limits)


def roles_of(found: Mapping[str, Declaration]) -> dict[str, Assignment]:
    """Return the roles of the arrays of which a file declares something, as from a framework."""
    return {name: Assignment("other", each.why) for name, each in found.items()}


def obeying(policy: Policy, arrays: Iterable[Candidate]) -> Policy:
    """Return the policy that obeys what is declared of arrays; the same if nothing is."""
    found: dict[str, Quantizer] = {}
    for c in arrays:
        if c.declared is not None:
            quantizer = obeyed(policy, c.declared, c.name, c.role, c.why, c.kind, c.elements)
            if quantizer is not None:
                found[c.name] = quantizer
    return policy.with_arrays(found) if found else policy


def obeyed(
    policy: Policy,
    declared: Declaration,
    name: str,
    role: Role,
    why: str,
    kind: ElementType,
    size: int,
) -> Quantizer | None:
    """Return the quantizer that obeys what is declared of an array; None if the policy's does.

    `why` says why it has its role. Other parameters are those of `Policy.choose`.
    """
    if not policy.may_lose(name, role, kind, size):
        return None
    if declared.exact:
        return None if why.startswith(GIVEN) or policy.names(name) else Lossless()
    if not declared.fills and (declared.minimum, declared.maximum) == (None, None):
        return None
    asked = policy.choose(name, role, kind, size)
    return asked.with_fills(declared.fills, declared.minimum, declared.maximum) or Lossless()
