"""A state as named arrays, and files that are written whole."""

from lccodec.adapters.files.formats import replacing


def test_what_is_written_is_never_open_to_more_readers_than_the_file(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"")
    path.chmod(0o600)
    with replacing(path) as temporary:
        assert temporary.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(path)
    with replacing(tmp_path / "link") as temporary:
        assert temporary.stat().st_mode & 0o777 == 0o600
        temporary.write_bytes(b"new")
    assert not (tmp_path / "link").is_symlink()  # the link is replaced, not what it points to
    assert path.read_bytes() == b""
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with replacing(tmp_path / "dangling") as temporary:
        temporary.write_bytes(b"new")
    assert (tmp_path / "dangling").read_bytes() == b"new"
