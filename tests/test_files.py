"""Files: writes are atomic and keep the usual permissions, and errors name the file."""

import stat

import pytest
import torch

import bayesticket as bt
from bayesticket.files import (
    PARTIAL,
    claimed_directory,
    new_directory,
    read_tensors,
    reading,
    remove_partials,
    write_atomically,
    write_json,
    write_tensors,
)


def test_files_get_the_usual_permissions(tmp_path):
    (tmp_path / "usual").write_text("")
    write_json(tmp_path / "a.json", {})
    write_tensors(tmp_path / "a.safetensors", {"a": torch.ones(2)})
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


@pytest.mark.parametrize("broken", [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError()])
def test_a_write_that_fails_keeps_the_old_file(tmp_path, broken):
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})
    before = path.read_bytes()

    def write(temporary):
        temporary.write_text("half")
        raise broken

    expected = bt.BayesticketError if isinstance(broken, OSError) else type(broken)
    with pytest.raises(expected) as caught:
        write_atomically(path, write)
    if isinstance(broken, OSError):
        assert str(caught.value) == f"{path}: could not be written ([Errno 28] No space left on device)"
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_temporary_files_of_killed_writes_are_removed_and_nothing_else(tmp_path):
    for name in (f".run.json.1234{PARTIAL}", f"mine{PARTIAL}", ".hidden", "run.json"):
        (tmp_path / name).write_text("")
    remove_partials(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", f"mine{PARTIAL}", "run.json"]


@pytest.mark.parametrize("error", [KeyError("a"), RecursionError("deep\ndeeper"), StopIteration(), AssertionError()])
def test_every_error_while_reading_is_one_line_that_names_the_file(tmp_path, error):
    with pytest.raises(bt.BayesticketError) as caught, reading(tmp_path / "a.json"):
        raise error
    assert str(caught.value).startswith(f"{tmp_path / 'a.json'}: ")
    assert "\n" not in str(caught.value)


def test_tensors_are_read_back_with_their_note(tmp_path):
    tensor = torch.rand(3)
    write_tensors(tmp_path / "a.safetensors", {"a": tensor, "b": tensor}, {"note": "x"})
    tensors, note = read_tensors(tmp_path / "a.safetensors")
    assert torch.equal(tensors["a"], tensor)
    assert torch.equal(tensors["b"], tensor)
    assert note == {"note": "x"}


def test_a_claimed_directory_is_removed_after_an_error_with_the_parents_that_were_created(tmp_path):
    with pytest.raises(KeyError), claimed_directory("out", tmp_path / "a" / "b"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with claimed_directory("out", tmp_path / "a" / "b") as directory:
        pass
    assert directory.is_dir()


def test_a_claimed_directory_is_kept_after_an_error_if_it_existed_or_holds_a_file(tmp_path):
    (tmp_path / "old").mkdir()
    with pytest.raises(ZeroDivisionError), claimed_directory("out", tmp_path / "old"):
        1 / 0  # noqa: B018
    with pytest.raises(IsADirectoryError), claimed_directory("out", tmp_path / "new") as directory:
        (directory / "result").mkdir() or (directory / "result").write_text("")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]


def test_a_new_directory_takes_the_first_free_number(tmp_path):
    names = [new_directory(tmp_path, "a").name for _ in range(3)]
    assert names == ["a", "a-2", "a-3"]
