"""``python -m lccodec`` is the command, and names the extra that is missing."""

import pytest

import lccodec

from .support.commands import command
from .support.programs import run_program


@pytest.mark.slow
def test_the_module_is_the_command(tmp_path):
    assert command("--version").stdout.decode().strip() == f"lccodec {lccodec.__version__}"
    done = command("save", tmp_path / "new", "none.npz")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_the_extra_one_line_names_it(package):
    code = f"import sys; sys.modules[{package!r}] = None; from lccodec.__main__ import main; main()"
    done = run_program(code, code=2)
    assert done.stderr == f"lccodec: error: the command line needs {package}: pip install 'lccodec[cli]'\n"
