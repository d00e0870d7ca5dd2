"""Sizes as people write them, and what is said of a file that was written."""

import click
import numpy as np
import pytest

from lccodec.cli.foreign import save_output
from lccodec.cli.parameters import Size


@pytest.mark.parametrize(
    ("text", "size"),
    [("5GB", 5 * 10**9), ("512MiB", 512 * 2**20), ("7", 7), ("7B", 7), ("3 kB", 3000), ("1T", 10**12)],
)
def test_sizes(text, size):
    assert Size().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5GB", "GB", "1XB", "1e9", "9" * 40])
def test_what_is_not_a_size(text):
    with pytest.raises(click.BadParameter, match="must be a size such as 5GB"):
        Size().convert(text, None, None)


def test_metadata_that_are_left_out_are_told(tmp_path, capsys):
    path = tmp_path / "a.npz"
    document = save_output({"x": np.ones(3)}, path, {"author": "me"})
    assert document == {"file": str(path), "bytes": path.stat().st_size, "metadata": {}}
    assert "left out: author" in capsys.readouterr().err
