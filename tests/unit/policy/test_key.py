from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from everstep.errors import RedactionKeyError
from everstep.policy import key
from everstep.policy.key import load_key


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key, "_loaded", {})
    monkeypatch.delenv("EVERSTEP_KEY_FILE", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "keys" / "my.key"
    monkeypatch.setenv("EVERSTEP_KEY_FILE", str(path))
    return path


def test_the_first_use_makes_a_key_for_its_owner_alone(path: Path) -> None:
    made = load_key()
    assert len(made) == 32
    assert path.read_bytes() == made
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_two_keys_are_never_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_key()
    monkeypatch.setenv("EVERSTEP_KEY_FILE", str(path.with_name("other.key")))
    assert load_key() != first


def test_a_key_is_made_for_its_owner_alone_under_any_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        load_key()
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_key_is_read_once_per_process_and_path(path: Path) -> None:
    made = load_key()
    path.unlink()
    assert load_key() == made
    assert not path.exists()


def test_the_key_lies_under_the_configuration_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    made = load_key()
    assert (tmp_path / "everstep" / "redaction.key").read_bytes() == made


@pytest.mark.parametrize("config", [None, "", "relative/folder"])
def test_without_a_configuration_folder_the_key_lies_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    if config is not None:
        monkeypatch.setenv("XDG_CONFIG_HOME", config)
    made = load_key()
    assert (tmp_path / ".config" / "everstep" / "redaction.key").read_bytes() == made


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
def test_a_key_that_others_may_use_is_refused(path: Path, mode: int) -> None:
    """Promise 10: whoever can read the key can test guesses against the placeholders."""
    load_key()
    path.chmod(mode)
    key._loaded.clear()
    with pytest.raises(RedactionKeyError, match=rf"others may use it \(mode {mode:o}\).*chmod 600"):
        load_key()


@pytest.mark.parametrize("size", [0, 31, 33, 4096])
def test_a_file_that_is_not_a_key_is_refused_and_left_alone(path: Path, size: int) -> None:
    path.parent.mkdir()
    path.write_bytes(b"k" * size)
    path.chmod(0o600)
    with pytest.raises(RedactionKeyError, match=r"holds .* bytes, and a key has 32"):
        load_key()
    assert path.stat().st_size == size


def test_a_folder_or_a_pipe_in_place_of_the_key_is_refused(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(RedactionKeyError, match="not a file"):
        load_key()
    path.rmdir()
    os.mkfifo(path, 0o600)
    with pytest.raises(RedactionKeyError, match="not a file"):
        load_key()


def test_a_folder_that_cannot_be_made_is_refused_with_the_reason(path: Path) -> None:
    """Promise 13: no key, no quiet fallback."""
    path.parent.write_text("a file where the folder should be")
    with pytest.raises(RedactionKeyError, match=r"Not a directory.*EVERSTEP_KEY_FILE") as caught:
        load_key()
    assert caught.value.path == str(path)


def test_a_dangling_link_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to(path.parent / "missing" / "key")
    with pytest.raises(RedactionKeyError, match="No such file"):
        load_key()


def test_processes_that_start_together_end_with_one_whole_key(path: Path) -> None:
    code = "import sys; from everstep.policy.key import load_key; sys.stdin.read(1); print(load_key().hex())"
    pipe = subprocess.PIPE
    started = [subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) for _ in range(6)]
    for process in started:  # all are waiting for this, or will find it there
        assert process.stdin
        process.stdin.write("x")
        process.stdin.flush()
    keys = {process.communicate()[0].strip() for process in started}
    assert keys == {path.read_bytes().hex()}
    assert list(path.parent.iterdir()) == [path]
