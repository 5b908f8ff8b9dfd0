"""Files of a run: written whole or not at all, read without executing anything."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bayesticket.errors import BayesticketError, refuse


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file beside `path` and renames it, so that `path` is never seen half written."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        write(Path(temporary))
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, data: object) -> None:
    """Writes JSON, atomically."""
    text = json.dumps(data, indent=2, ensure_ascii=False)
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> dict:
    """Reads a JSON object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise refuse("path", str(path), "an existing file; a saved run has run.json") from error
    except (OSError, ValueError) as error:
        raise BayesticketError(f"{path}: not readable as JSON ({error}); accepted: a run.json written whole") from error
    if not isinstance(data, dict):
        raise BayesticketError(f"{path}: not a JSON object; accepted: a run.json")
    return data


def write_tensors(path: Path, tensors: Mapping[str, Tensor], note: Mapping[str, str] | None = None) -> None:
    """Writes named tensors and a note of strings as safetensors, atomically."""
    # Copied, since safetensors refuses tensors that share memory.
    content = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(path, lambda temporary: save_file(content, temporary, metadata=dict(note or {})))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Reads named tensors and the note that goes with them."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except FileNotFoundError as error:
        raise refuse("path", str(path), "an existing safetensors file") from error
    except (SafetensorError, OSError, RuntimeError) as error:
        raise BayesticketError(f"{path}: truncated or not a safetensors file ({error})") from error


def require_directory(field: str, path: object) -> Path:
    """Refuses a path that cannot become a directory to write to, without creating anything."""
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise refuse(field, path, "the path of a directory")
    directory = Path(path).expanduser()
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


def versions() -> dict[str, str]:
    """Versions of what a run's numbers depend on."""
    from importlib.metadata import version

    names = ("bayesticket", "transformer-lens", "numpy")
    return {name: version(name) for name in names} | {
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
    }
