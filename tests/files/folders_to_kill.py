"""Writes folders and kills itself at every fault point; prints what each kill left behind. Run by test_writing.py.

python folders_to_kill.py FOLDER        a new folder, then the same again with an unrelated file in it
python folders_to_kill.py FOLDER inner  the same with names that have folders of their own
python folders_to_kill.py FOLDER deep   the same with an unrelated subfolder, so that it cannot be swapped as a whole
"""

import os
import shutil
import sys
from pathlib import Path

from refluid.files.storage import PARTIAL
from refluid.files.writing import write_together

NAMES = ["a", "b", "c"] if "inner" not in sys.argv else ["a", "inner/b", "inner/deeper/c"]


def write(folder, value):
    write_together(folder, {name: lambda stream: stream.write(value * 100000) for name in NAMES})


def look(folder):
    """What a reader finds: absent, the letters in the files, or that something is wrong."""
    if not folder.exists():
        return "absent"
    found = ""
    for name in NAMES:
        if (folder / name).exists():
            content = (folder / name).read_bytes()
            whole = len(content) == 100000 and len(set(content)) == 1
            found += chr(content[0]) if whole else "?"
        else:
            found += "-"
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return found + "+" * len([name for name in files.difference(NAMES) if not name.endswith(PARTIAL)])


def die_everywhere(root, deep):
    for stage in ("first", "second"):
        for kill_at in range(1, 100):
            shutil.rmtree(root, ignore_errors=True)
            folder = root / "folder"
            root.mkdir()
            if stage == "second":
                write(folder, b"1")
                other = folder / "sub" / "other" if deep else folder / "other"
                other.parent.mkdir(exist_ok=True)
                other.write_bytes(b"somebody else's")
            child = os.fork()
            if child == 0:
                os.environ["REFLUID_KILL_AT"] = str(kill_at)
                write(folder, b"2")
                os._exit(0)
            _, status = os.waitpid(child, 0)
            print(stage, look(folder), "finished" if status == 0 else "killed")
            if status == 0:
                break


if __name__ == "__main__":
    die_everywhere(Path(sys.argv[1]), deep="deep" in sys.argv)
