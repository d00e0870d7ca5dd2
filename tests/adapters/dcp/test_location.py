"""The location of a checkpoint: given at first, changed by each save and load."""

import pytest

from lccodec.adapters.dcp.location import Location
from lccodec.errors import ArgumentError


def test_a_save_or_a_load_can_change_the_path(tmp_path):
    location = Location(str(tmp_path))
    location.reset()
    assert location.checkpoint_id == tmp_path
    location.reset(tmp_path / "0")
    assert location.checkpoint_id == tmp_path / "0"
    with pytest.raises(ArgumentError, match="the address"):
        location.reset("s3://bucket/run")
    assert location.checkpoint_id == tmp_path / "0"


@pytest.mark.parametrize(("path", "valid"), [("run", True), ("s3://bucket/run", False), ("", False)])
def test_only_a_path_is_the_name_of_a_checkpoint(path, valid):
    assert Location.validate_checkpoint_id(path) is valid
