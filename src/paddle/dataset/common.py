"""Download and storage of dataset files, and splitting of datasets for several trainers."""

import glob
import hashlib
import importlib
import itertools
import os
import pickle
import tempfile
import urllib.error
import urllib.request
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from refluid.files.recordio import Compressor, Writer
from refluid.files.writing import atomic_write
from refluid.log import Log
from refluid.readers import synthetic

__all__ = ["DATA_HOME", "cluster_files_reader", "convert", "download", "md5file", "split"]

# Fluid's location, so that files it downloaded are found; REFLUID_DATA_HOME overrides it.
DATA_HOME = os.environ.get("REFLUID_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".cache", "paddle", "dataset")

_ATTEMPTS = 3
_TIMEOUT_SECONDS = 60
_CHUNK = 1 << 20


def must_mkdirs(path):
    """Creates a directory unless it exists."""
    os.makedirs(path, exist_ok=True)


def md5file(fname):
    """Returns the MD5 of a file in hexadecimal."""
    with open(fname, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def download(url, module_name, md5sum, save_name=None):
    """Downloads a dataset file unless one with the right MD5 exists; returns its path.

    Args:
      module_name: the directory below DATA_HOME.
      md5sum: the expected MD5; None accepts any file.
      save_name: the local file name; defaults to the last part of the URL.
    """
    folder = os.path.join(DATA_HOME, module_name)
    must_mkdirs(folder)
    path = os.path.join(folder, save_name or url.split("/")[-1].strip('"'))
    problem = "not tried"
    for _ in range(_ATTEMPTS):
        if os.path.exists(path) and md5sum in (None, md5file(path)):
            return path
        try:
            problem = _fetch(url, path, md5sum)
        except (OSError, urllib.error.URLError) as error:
            problem = str(error)
    if problem is None:
        return path
    raise RuntimeError(
        f"could not download {url} in {_ATTEMPTS} attempts: {problem}\n"
        f"  expected file  {path}\n"
        f"  expected md5   {md5sum}\n"
        f"  hint           download the file elsewhere and put it there, or set {synthetic.SWITCH}=1 to use small "
        f"synthetic data of the same format"
    )


def _fetch(url, path, md5sum):
    """Downloads to a temporary file and renames it; returns a description of the problem, or None."""
    digest = hashlib.md5()
    handle, partial = tempfile.mkstemp(dir=os.path.dirname(path), suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file, urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response:
            for chunk in _chunks(response, url, path):
                digest.update(chunk)
                file.write(chunk)
        if md5sum is not None and digest.hexdigest() != md5sum:
            return f"the downloaded file has md5 {digest.hexdigest()}"
        os.replace(partial, path)
        return None
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def _chunks(response, url, path):
    """Yields the content of a response, with a progress bar on a terminal or in a notebook, else a line in the log."""
    console = Console(stderr=True)
    is_seen = console.is_terminal or console.is_jupyter
    size = response.headers.get("Content-Length", "")
    if not is_seen:
        Log("dataset").info("downloading", url=url, to=path, bytes=size or None)
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=console, disable=not is_seen) as progress:
        task = progress.add_task(os.path.basename(path), total=int(size) if size.isdigit() else None)
        while chunk := response.read(_CHUNK):
            yield chunk
            progress.advance(task, len(chunk))


def fetch_all():
    """Downloads the files of all datasets."""
    datasets = importlib.import_module("paddle.dataset")
    for name in datasets.__all__:
        fetch = getattr(getattr(datasets, name), "fetch", None)
        if fetch is not None:
            fetch()


def split(reader, line_count, suffix="%05d.pickle", dumper=pickle.dump):
    """Writes the samples of a reader to numbered files of ``line_count`` samples each.

    Args:
      suffix: the file name, with a placeholder for the number.
      dumper: called as ``dumper(samples, file)``.
    """
    if not callable(dumper):
        raise TypeError("dumper must be callable")
    for number, lines in enumerate(_parts(reader, line_count)):
        with atomic_write(suffix % number) as file:
            dumper(lines, file)


def convert(output_path, reader, line_count, name_prefix):
    """Writes the samples of a reader to recordio files, for `paddle.reader.creator.recordio`.

    Args:
      output_path: the folder.
      line_count: how many samples a file has.
      name_prefix: files are called ``name_prefix-00000``, and so on.
    """
    for number, lines in enumerate(_parts(reader, line_count)):
        with Writer(os.path.join(output_path, f"{name_prefix}-{number:05d}"), Compressor.NoCompress) as writer:
            for sample in lines:
                writer.write(pickle.dumps(sample, protocol=2))


def _parts(reader, size):
    """Lists of ``size`` samples; the last may be shorter."""
    if size < 1:
        raise ValueError(f"line_count must be at least 1, not {size}")
    samples = iter(reader())
    while part := list(itertools.islice(samples, size)):
        yield part


def cluster_files_reader(files_pattern, trainer_count, trainer_id, loader=pickle.load):
    """Returns a reader of this trainer's share of the files written by `split`.

    Args:
      files_pattern: a ``glob`` pattern; every ``trainer_count``-th file in sorted order belongs to this trainer.
      loader: called as ``loader(file)``; returns a list of samples.
    """
    if not callable(loader):
        raise TypeError("loader must be callable")

    def reader():
        for path in sorted(glob.glob(files_pattern))[trainer_id::trainer_count]:
            with open(path, "rb") as file:
                samples: Any = loader(file)
                yield from samples

    return reader
