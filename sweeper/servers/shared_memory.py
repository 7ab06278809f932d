"""The shared memory of a server: files under /dev/shm that outlive who made them.

Whatever ends a server by force leaves them there, and nothing on the machine
takes them away: SGLang's load reports, NCCL's and Python's segments. Nothing in
a name says whose it is, so it is noted while the server runs which files its
processes have mapped or open.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from sweeper.servers.tagged import ProcessRef, all_pids

FOLDER = Path("/dev/shm")  # noqa: S108 - the kernel's place for it, not a temporary file of ours
_DELETED = " (deleted)"

Identity = tuple[str, int]
"""Name and inode of a file: a name alone may be given to another file."""


def files(folder: Path = FOLDER) -> set[Identity]:
    """All that is there now. Taken before a launch, it tells what is not the server's."""
    try:
        with os.scandir(folder) as entries:
            return {(entry.name, entry.inode()) for entry in entries}
    except OSError:
        return set()  # a container may have none


def shared_memory_of(processes: Iterable[ProcessRef], folder: Path = FOLDER) -> set[str]:
    """Names of the files that these processes have mapped or open.

    Files in folders below are left out: no call that makes shared memory makes
    them there, but people keep models there, which servers map.
    """
    return {name for ref in processes for name in _used_by(ref.pid, folder)}


def remove(
    names: Collection[str], before: Collection[Identity], folder: Path = FOLDER
) -> tuple[list[str], list[str]]:
    """Remove the files of a server that is gone.

    A file stays when it was there before the server, when it is another user's,
    when it is no plain file, and when any process has it mapped or open.

    Args:
        names: that the server's processes used.
        before: what was there before the launch.

    Returns:
        the paths that were removed, and what went wrong.
    """
    ours = [folder / name for name in sorted(names) if _removable(folder / name, before)]
    if not ours:
        return [], []
    used = {name for pid in all_pids() for name in _used_by(pid, folder)}
    removed, problems = [], []
    for path in ours:
        if path.name in used:
            continue
        try:
            path.unlink()
            removed.append(str(path))
        except FileNotFoundError:
            continue
        except OSError as error:
            problems.append(f"{path} cannot be removed: {error.strerror}")
    return removed, problems


def _removable(path: Path, before: Collection[Identity]) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_uid == os.getuid()
        and (path.name, status.st_ino) not in before
    )


def _used_by(pid: int, folder: Path) -> Iterator[str]:
    start = f"{folder}/"
    for path in _paths(pid):
        name = path[len(start) :]
        if path.startswith(start) and "/" not in name and not name.endswith(_DELETED):
            yield name


def _paths(pid: int) -> Iterator[str]:
    """Every file that a process has mapped or open, as far as we may see it."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        maps = ""
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)  # address, rights, offset, device, inode, path
        if len(fields) == 6:
            yield fields[5]
    try:
        handles = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return
    for handle in handles:
        try:
            yield str(handle.readlink())
        except OSError:
            continue
