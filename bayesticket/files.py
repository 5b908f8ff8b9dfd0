"""Reading and writing files: writes are atomic, damage is noticed, and reading never executes what a file contains."""

import hashlib
import itertools
import json
import os
import re
import secrets
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bayesticket.errors import BayesticketError, one_line, refuse, refuse_case


class Unreadable(BayesticketError):
    """Raised for a file that is missing, truncated, damaged or not this library's; the message names it."""


LARGEST_TEXT = 2**26
"""Bytes of the largest JSON or TOML file that is read."""


PARTIAL = ".partial"
"""The suffix of temporary files; those that are left belong to writes that were killed."""


Fingerprint = dict[str, int | str]
"""The size of a file in bytes, and its SHA-256."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> Fingerprint:
    """Writes a temporary file beside `path`, syncs it to disk and renames it: `path` never holds a part of the content.

    `write` is called with the path of the temporary file. If it fails, `path` keeps its old content. Returns the
    fingerprint of what was written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        temporary.touch()
        usual = temporary.stat().st_mode
        write(temporary)
        temporary.chmod(usual)  # safetensors replaces the file by one that only its owner may read
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        written_content = fingerprint(temporary)
        os.replace(temporary, path)
        return written_content
    except (OSError, SafetensorError, UnicodeError) as error:
        _discard(temporary)
        raise BayesticketError(f"{path}: could not be written ({one_line(error)})") from error
    except BaseException:
        _discard(temporary)
        raise


def fingerprint(path: Path) -> Fingerprint:
    """The fingerprint of a file."""
    with open(path, "rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def require_fingerprint(path: Path, written: object) -> None:
    """Raises unless a file has the fingerprint that it was written with; one of another size is not read for that."""
    with reading(path):
        size = written.get("bytes") if isinstance(written, dict) else None
        if path.stat().st_size != size or fingerprint(path) != written:
            raise ValueError("other bytes than were written with the run")


def _discard(temporary: Path) -> None:
    with suppress(OSError):  # the error of the write itself is the one to report
        temporary.unlink(missing_ok=True)


def is_partial(path: Path) -> bool:
    """Whether a file is a temporary one, which a killed process has left.

    >>> is_partial(Path(".run.json.3f2a.partial")), is_partial(Path("run.json"))
    (True, False)
    """
    by_safetensors = re.fullmatch(r"\.tmp\w{6}", path.name)  # safetensors has a temporary file of its own
    return path.name.startswith(".") and (path.name.endswith(PARTIAL) or by_safetensors is not None)


def remove_partials(directory: Path) -> None:
    """Removes the temporary files that killed processes have left in a directory."""
    for path in directory.iterdir():
        if is_partial(path):
            path.unlink(missing_ok=True)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns every error inside, while a file is read and interpreted, into `Unreadable` with the name of the file."""
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            raise refuse_case("content", "what is no file", "a regular file")
        yield
    except FileNotFoundError as error:
        raise Unreadable(str(refuse("path", str(path), "an existing file; a saved run has run.json"))) from error
    except BayesticketError as error:
        raise Unreadable(f"{path}: {error}") from error
    except Exception as error:  # whatever interprets a damaged file may raise anything
        raise Unreadable(f"{path}: truncated, damaged or foreign ({one_line(error)})") from error


def write_json(path: Path, data: object) -> None:
    """Writes JSON, atomically."""
    text = json.dumps(data, indent=2, ensure_ascii=False)
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_text(path: Path) -> str:
    """Reads a text in UTF-8; raises where the file is none, or larger than any that this library reads."""
    with reading(path):
        if (size := path.stat().st_size) > LARGEST_TEXT:
            raise refuse_case("content", f"{size:,} bytes", f"at most {LARGEST_TEXT:,}")
        return path.read_text(encoding="utf-8")


def read_json(path: Path) -> dict:
    """Reads a JSON object."""
    text = read_text(path)
    with reading(path):
        data = json.loads(text, object_pairs_hook=_without_repeats)
        if not isinstance(data, dict):
            raise refuse("content", data, "a JSON object")
        return data


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    data = dict(pairs)
    if len(data) < len(pairs):
        (repeated, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise refuse("content", repeated, "every key once")
    return data


def json_digest(data: object) -> str:
    """The SHA-256 of what JSON says, whatever its layout.

    >>> json_digest({"a": 1, "b": [2]}) == json_digest({"b": [2], "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], note: Mapping[str, str] | None = None) -> Fingerprint:
    """Writes named tensors, and a note of strings as metadata, as safetensors, atomically."""
    # Cloned, since safetensors rejects tensors that share memory.
    content = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return write_atomically(path, lambda temporary: save_file(content, temporary, metadata=dict(note or {})))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Reads named tensors, and the note that was written with them."""
    with reading(path), safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118


def tensors_digest(tensors: Mapping[str, Tensor], note: Mapping[str, str]) -> str:
    """The SHA-256 of named tensors and a note."""
    found = hashlib.sha256(json.dumps(dict(note), sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    return found.hexdigest()


def write_sealed(path: Path, tensors: Mapping[str, Tensor], note: Mapping[str, str]) -> None:
    """Writes tensors and a note with their own digest, so that `read_sealed` notices any other bytes."""
    write_tensors(path, tensors, {**note, "sha256": tensors_digest(tensors, note)})


def read_sealed(path: Path, *, damaged: bool = False) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Reads what `write_sealed` wrote; raises where it is not that, unless it may be `damaged`."""
    tensors, note = read_tensors(path)
    with reading(path):
        if note.pop("sha256", None) != tensors_digest(tensors, note) and not damaged:
            raise ValueError("other bytes than were written")
    return tensors, note


def require_path(field: str, path: object, accepted: str) -> Path:
    """The given path with `~` expanded; raises an error unless it is a string or a path."""
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise refuse(field, path, accepted)
    text = os.fspath(path)
    if not isinstance(text, str) or not text.isprintable():
        raise refuse(field, path, f"{accepted}, of printable letters")
    if len(text.encode()) > 4000 or max(len(part.encode()) for part in text.split("/")) > 255:
        raise refuse(field, path, f"{accepted}, shorter than 4,000 bytes, with no name longer than 255")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # nobody has that home
        raise refuse(field, path, f"{accepted}; {one_line(error)}") from error


def require_directory(field: str, path: object) -> Path:
    """The path of a directory that can be written to, or created; raises an error otherwise. Creates nothing."""
    directory = require_path(field, path, "the path of a directory")
    try:
        nearest = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    except OSError as error:
        raise refuse(field, str(path), f"a directory that can be written to ({error.strerror})") from error
    if not nearest.is_dir():
        raise refuse(field, str(path), f"a directory that can be written to; {str(nearest)!r} is a file")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise refuse(field, str(path), f"a directory that can be written to; {str(nearest)!r} cannot")
    return directory


def prepare_directory(field: str, path: str | os.PathLike[str]) -> Path:
    """Creates a directory, if need be; raises an error unless files can be written to it."""
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
    """Creates a directory as `prepare_directory` does, and removes it again if the code inside the context fails.

    Directories that existed before, or hold files by then, are kept.
    """
    directory = require_directory(field, path)
    created = [parent for parent in (directory, *directory.parents) if not parent.exists()]
    prepare_directory(field, directory)
    try:
        yield directory
    except BaseException:
        for parent in created:
            with suppress(OSError):  # not empty any more
                parent.rmdir()
        raise


def new_directory(parent: Path, name: str) -> Path:
    """Creates the directory `name`, or the first of name-2, name-3, … that does not exist yet."""
    for number in itertools.count(1):
        directory = parent / (name if number == 1 else f"{name}-{number}")
        with suppress(FileExistsError):
            directory.mkdir(parents=True)
            return directory
    raise AssertionError("unreachable: the numbers do not end")
