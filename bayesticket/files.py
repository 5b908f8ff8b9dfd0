"""Files of a run: written whole or not at all, read without executing anything."""

import itertools
import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse


class Unreadable(BayesticketError):
    """A file that is missing, truncated, damaged or foreign; the message names it."""


PARTIAL = ".partial"
"""How the names of files end that are being written, or that a killed process has left half written."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file beside `path` and renames it, so that `path` is never seen half written."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        temporary.touch()
        usual = temporary.stat().st_mode
        write(temporary)
        temporary.chmod(usual)  # safetensors replaces the file by one that only its owner can read
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    except (OSError, SafetensorError, UnicodeError) as error:
        _discard(temporary)
        raise BayesticketError(f"{path}: could not be written ({one_line(error)})") from error
    except BaseException:
        _discard(temporary)
        raise


def _discard(temporary: Path) -> None:
    with suppress(OSError):  # nothing may hide why the file could not be written
        temporary.unlink(missing_ok=True)


def is_partial(path: Path) -> bool:
    """Whether a file is one that this library was writing when its process was killed."""
    by_safetensors = re.fullmatch(r"\.tmp\w{6}", path.name)  # which writes beside the file that it is given
    return path.name.startswith(".") and (path.name.endswith(PARTIAL) or by_safetensors is not None)


def remove_partials(directory: Path) -> None:
    """Removes what a killed process has left half written."""
    for path in directory.iterdir():
        if is_partial(path):
            path.unlink(missing_ok=True)


def one_line(error: BaseException) -> str:
    """What an error says, on one line; its kind where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Names the file in every error that comes of reading it and of making sense of what it holds."""
    try:
        yield
    except FileNotFoundError as error:
        raise Unreadable(str(refuse("path", str(path), "an existing file; a saved run has run.json"))) from error
    except BayesticketError as error:
        raise Unreadable(f"{path}: {error}") from error
    except Exception as error:  # a damaged or foreign file can break whatever interprets it, in any way
        raise Unreadable(f"{path}: truncated, damaged or foreign ({one_line(error)})") from error


def write_json(path: Path, data: object) -> None:
    """Writes JSON, atomically."""
    text = json.dumps(data, indent=2, ensure_ascii=False)
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> dict:
    """Reads a JSON object."""
    with reading(path):
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise refuse("content", data, "a JSON object")
        return data


def write_tensors(path: Path, tensors: Mapping[str, Tensor], note: Mapping[str, str] | None = None) -> None:
    """Writes named tensors and a note of strings as safetensors, atomically."""
    # Copied, since safetensors refuses tensors that share memory.
    content = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(content, temporary, metadata=dict(note or {})))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Reads named tensors and the note that goes with them."""
    with reading(path), safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118


def require_path(field: str, path: object, accepted: str) -> Path:
    """Refuses what is no path."""
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise refuse(field, path, accepted)
    return Path(path).expanduser()


def require_directory(field: str, path: object) -> Path:
    """Refuses a path that cannot become a directory to write to, without creating anything."""
    directory = require_path(field, path, "the path of a directory")
    nearest = next(place for place in (directory, *directory.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise refuse(field, str(path), f"a directory that can be written to; {str(nearest)!r} is a file")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise refuse(field, str(path), f"a directory that can be written to; {str(nearest)!r} cannot")
    return directory


def prepare_directory(field: str, path: str | os.PathLike[str]) -> Path:
    """Makes a directory, or refuses a path where files cannot be written."""
    directory = require_directory(field, path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise refuse(field, str(path), f"a directory that can be written to ({error.strerror})") from error
    return directory


@contextmanager
def claimed_directory(field: str, path: str | os.PathLike[str]) -> Iterator[Path]:
    """Makes a directory as `prepare_directory` does, and takes it away again if what follows fails."""
    directory = require_directory(field, path)
    made = [place for place in (directory, *directory.parents) if not place.exists()]
    prepare_directory(field, directory)
    try:
        yield directory
    except BaseException:
        for place in made:
            with suppress(OSError):  # it holds something by now
                place.rmdir()
        raise


def new_directory(parent: Path, name: str) -> Path:
    """Makes the directory of that name, or the first of name-2, name-3, … that is not there yet."""
    for number in itertools.count(1):
        directory = parent / (name if number == 1 else f"{name}-{number}")
        with suppress(FileExistsError):
            directory.mkdir(parents=True)
            return directory
    raise AssertionError("there are numbers enough")


def versions() -> dict[str, str]:
    """Versions of what a run's numbers depend on."""
    from importlib.metadata import version

    names = ("bayesticket", "transformer-lens", "numpy")
    return {name: version(name) for name in names} | {
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
    }
