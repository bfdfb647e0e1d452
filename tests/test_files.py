"""Files that appear whole or not at all, with the permissions of what they replace."""

import errno
import fcntl
import os
import stat

import pytest

from lv_fairseq.errors import UserError
from lv_fairseq.files import copied_whole, hidden, remove_left, temporary_folder, written_whole


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask():
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_a_new_file_has_ordinary_permissions_and_a_replaced_one_keeps_its_own(tmp_path, umask):
    for permissions in (0o600, 0o664, 0o444):
        path = tmp_path / f"{permissions:o}"
        path.write_text("before")
        path.chmod(permissions)
        with written_whole(path) as file:
            file.write(b"after")
        assert mode(path) == permissions and path.read_text() == "after"
    with written_whole(tmp_path / "new") as file:
        file.write(b"after")
    assert mode(tmp_path / "new") == 0o640


def test_a_private_file_is_private_while_it_is_written(tmp_path):
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    with written_whole(path):
        (temporary,) = set(tmp_path.iterdir()) - {path}
        assert mode(temporary) == 0o600


def test_a_link_that_waits_under_the_temporary_name_is_not_followed(tmp_path, monkeypatch):
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_text("of somebody else")
    monkeypatch.setattr("secrets.token_hex", lambda size: "guessed")
    hidden(path).symlink_to(victim)
    with pytest.raises(UserError, match="file: File exists"):
        with written_whole(path) as file:
            file.write(b"mine")
    assert victim.read_text() == "of somebody else" and not path.exists()


def test_two_may_write_the_same_file_and_the_last_one_stays(tmp_path):
    path = tmp_path / "file"
    with written_whole(path) as one:
        with written_whole(path) as other:
            one.write(b"one" * 9)
            other.write(b"other")
        assert path.read_bytes() == b"other"
    assert path.read_bytes() == b"one" * 9 and list(tmp_path.iterdir()) == [path]


def test_the_longest_names_are_written_too(tmp_path):
    path = tmp_path / ("ü" * 127)  # 254 bytes
    with written_whole(path) as file, temporary_folder(path):
        file.write(b"x")
    assert path.read_bytes() == b"x" and list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_stays(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name, word in (("folder", "folder"), ("fifo", "special file")):
        with pytest.raises(UserError, match=f"{name}: it is a {word}"):
            with written_whole(tmp_path / name):
                raise AssertionError("too late")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifo", "folder"] and (tmp_path / "fifo").is_fifo()


@pytest.mark.parametrize("error", [OSError(28, "full"), ValueError("mine"), SystemExit(3), KeyboardInterrupt()])
def test_nothing_stays_after_an_error(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("before")
    with pytest.raises(UserError if isinstance(error, OSError) else type(error)):
        with written_whole(path) as file, temporary_folder(path) as folder:
            (folder / "deep").mkdir()
            file.write(b"half")
            raise error
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]


def test_a_temporary_folder_is_for_us_alone(tmp_path):
    with temporary_folder(tmp_path / "file") as folder:
        assert folder.parent == tmp_path and mode(folder) == 0o700


@pytest.mark.parametrize("links", [True, False])
def test_a_link_needs_no_second_file_and_replacing_either_one_leaves_the_other(tmp_path, monkeypatch, links):
    def refuse(*names):
        raise OSError(errno.EXDEV, "not here")

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"first")
    two.write_bytes(b"old")
    one.chmod(0o644)
    two.chmod(0o644)
    for _ in range(2):  # the second time both are names of one file
        copied_whole(one, two, link=True)
        assert two.read_bytes() == b"first" and os.path.samefile(one, two) == links
    with written_whole(one) as file:
        file.write(b"second")
    assert (one.read_bytes(), two.read_bytes()) == (b"second", b"first")
    one.chmod(0o640)
    copied_whole(one, two, link=True)
    assert (one.read_bytes(), mode(two)) == (two.read_bytes(), 0o644) and not os.path.samefile(one, two)
    assert sorted(x.name for x in tmp_path.iterdir()) == ["one", "two"]


@pytest.mark.parametrize("link", [True, False])
def test_a_copy_follows_links_and_leaves_what_is_no_file(tmp_path, link):
    for name in ("one", "far"):
        (tmp_path / name).write_text(name)
    (tmp_path / "two").symlink_to("far")
    copied_whole(tmp_path / "one", tmp_path / "two", link)
    assert (tmp_path / "two").is_symlink() and (tmp_path / "far").read_text() == "one"
    copied_whole(tmp_path / "two", tmp_path / "three", link)  # the file, not what points to it
    assert not (tmp_path / "three").is_symlink()
    with written_whole(tmp_path / "three") as file:
        file.write(b"new")
    assert (tmp_path / "far").read_text() == (tmp_path / "one").read_text() == "one"
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="it is a folder"):
        copied_whole(tmp_path / "one", tmp_path / "folder", link)
    assert sorted(x.name for x in tmp_path.iterdir()) == ["far", "folder", "one", "three", "two"]


def test_a_copy_that_is_no_link_may_be_written_to(tmp_path):
    (tmp_path / "one").write_text("one")
    copied_whole(tmp_path / "one", tmp_path / "two")
    (tmp_path / "two").write_text("two")
    assert (tmp_path / "one").read_text() == "one"


def test_what_a_killed_process_has_not_finished_is_removed_and_nothing_else(tmp_path):
    names = [".checkpoint_last.pt.0123456789abcdef.tmp", ".checkpoint1.pt.0123456789abcdef.tmp"]
    names += ["checkpoint1.pt", ".checkpoint.tmp", ".other.0123456789abcdef.tmp"]
    for name in names:
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (1000, 1000))
    os.utime(tmp_path / names[1], (3000, 3000))  # somebody is still writing to it
    (tmp_path / ".checkpoint2.pt.0123456789abcdef.tmp").symlink_to(tmp_path / "checkpoint1.pt")
    remove_left(tmp_path, "checkpoint", before=2000)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*names[1:], ".checkpoint2.pt.0123456789abcdef.tmp"}
