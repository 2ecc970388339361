import os
import stat
from pathlib import Path

import pytest

from lookupdec.errors import FileError
from lookupdec.files import check_writable, write_atomically


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_gets_the_usual_mode(tmp_path):
    path = tmp_path / "new.txt"
    write_atomically(path, b"a\r\n")
    usual = tmp_path / "usual.txt"
    usual.touch()
    assert path.read_bytes() == b"a\r\n"
    assert path.stat().st_mode == usual.stat().st_mode


def test_mode_is_kept_and_nothing_is_left_behind(tmp_path):
    path = tmp_path / "run.sh"
    path.write_bytes(b"old")
    path.chmod(0o751)
    write_atomically(path, b"new", expected=b"old")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert files_in(tmp_path) == ["run.sh"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give files away")
def test_the_owner_is_kept(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    os.chown(path, 12, 34)
    path.chmod(0o4750)
    write_atomically(path, b"new")
    kept = path.stat()
    assert (kept.st_uid, kept.st_gid, stat.S_IMODE(kept.st_mode)) == (12, 34, 0o4750)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give files away")
def test_a_file_that_cannot_be_given_to_its_owner_is_written_in_place(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"old and longer")
    os.chown(path, 12, 34)
    before = path.stat()

    def refuse(*_args):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    write_atomically(path, b"new", expected=b"old and longer")
    after = path.stat()
    assert (path.read_bytes(), files_in(tmp_path)) == (b"new", ["a"])
    assert (after.st_uid, after.st_ino) == (12, before.st_ino)
    synced = iter([None, OSError(28, "No space left on device"), None])

    def full(_descriptor):
        if (error := next(synced)) is not None:
            raise error

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="no space left"):
        write_atomically(path, b"newest")
    assert (path.read_bytes(), files_in(tmp_path)) == (b"new", ["a"])


def test_a_symbolic_link_stays_one(tmp_path):
    folder = tmp_path / "real"
    folder.mkdir()
    (folder / "a").write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to(folder / "a")
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert (folder / "a").read_bytes() == b"new"
    assert files_in(folder) == ["a"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_the_file_is_untouched_whatever_goes_wrong(tmp_path, monkeypatch, error, call):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail(*_args):
        raise error

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else FileError):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert files_in(tmp_path) == ["a"]


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"theirs")
    with pytest.raises(FileError, match="changed while it was being edited"):
        write_atomically(path, b"ours", expected=b"old")
    assert path.read_bytes() == b"theirs"
    assert files_in(tmp_path) == ["a"]


def test_a_long_name_can_be_written(tmp_path):
    path = tmp_path / ("n" * 255)
    write_atomically(path, b"x")
    assert path.read_bytes() == b"x"


def test_what_cannot_be_written_is_refused_before_work_starts(tmp_path):
    with pytest.raises(FileError, match="is a directory"):
        check_writable(tmp_path)
    with pytest.raises(FileError, match="folder does not exist"):
        check_writable(tmp_path / "none" / "a")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="not a regular file"):
        check_writable(tmp_path / "pipe")


def test_a_missing_permission_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(FileError, match="permission denied"):
        check_writable(path)
