"""A temporary folder for each server, with a note of what must be ended and removed.

<temporary folder>/sweeper-1a2b3c4d/
├── server.json   written once: tag, owner, the first process
├── seen.json     written now and then: processes and shared memory that were seen
└── tmp/          the server's TMPDIR

The note is what a watcher, and a later ``sweeper doctor``, know of a server whose
owner is dead.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeper.servers import shared_memory
from sweeper.servers.tagged import ProcessRef, look_at

PREFIX = "sweeper-"
# A path of a unix socket has at most 107 bytes; the longest that Python puts into
# a temporary folder ("pymp-xxxxxxxx/listener-xxxxxxxx") and "/tmp/" need 40.
_LONGEST = 107 - 40
_SHORT = Path("/tmp")  # noqa: S108 - our folder there keeps others out, and is checked
# Where PyTorch (torch/_inductor/runtime/cache_dir_utils.py) and CUTLASS
# (cutlass/base_dsl/cache_helpers.py) keep compiled kernels below the temporary folder.
_COMPILED = {
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor_{user}",
    "CUTE_DSL_CACHE_DIR": "{user}/cutlass_python_cache",
}
# Two may remove a folder at the same time, each of whom then misses what the other took.
_TRIES = 5
# Two who remove the same folder get into each other's way once for each file.
_MOST_TRIES = 1000
_SERVER, _SEEN, _TEMP = "server.json", "seen.json", "tmp"


@dataclass(frozen=True)
class Note:
    """What is known of a server from its scratch folder.

    Args:
        tag: of the server.
        owner: who started it, and ends it while alive.
        leader: the first process of its session; None when there was none yet.
        boot: this start of the machine. References to processes mean nothing in the next.
        shared_before: shared memory that was there before the server.
        seen: its processes, when last looked.
        shared: names of the shared memory that they used.
    """

    tag: str
    owner: ProcessRef
    leader: ProcessRef | None = None
    boot: str = ""
    shared_before: frozenset[shared_memory.Identity] = frozenset()
    seen: frozenset[ProcessRef] = field(default=frozenset())
    shared: frozenset[str] = field(default=frozenset())


def path_of(tag: str, base: Path | None = None) -> Path:
    """Where the scratch folder of a server lies.

    Args:
        tag: of the server.
        base: by default the temporary folder, or /tmp where that one's name is too long.
    """
    name = PREFIX + hashlib.sha256(tag.encode()).hexdigest()[:8]
    base = Path(tempfile.gettempdir()) if base is None else base
    if len(os.fsencode(base / name)) > _LONGEST:
        base = _SHORT
    return base / name


def create(tag: str, base: Path | None = None) -> Path:
    """Make the folder, with ourselves as the owner, before anything is started.

    Raises:
        OSError: it cannot be made, or something of another user has its name.
    """
    path = path_of(tag, base)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not is_ours(path):
            raise
    owner = look_at(os.getpid())
    assert owner is not None
    before = frozenset(shared_memory.files())
    try:
        (path / _TEMP).mkdir(mode=0o700, exist_ok=True)
        _write_server(path, Note(tag, owner.ref, boot=boot_id(), shared_before=before))
    except OSError:
        remove(path)
        raise
    return path


def environment(path: Path, env: Mapping[str, str]) -> dict[str, str]:
    """What a server gets to keep its temporary files in its scratch folder.

    Compiled kernels that are kept below the temporary folder must be found again by
    the next server, so they stay where they would be without us.

    Args:
        path: the scratch folder.
        env: that the server would have without it.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = f"uid_{os.getuid()}"
    user = re.sub(r'[\\/:*?"<>|]', "_", user)
    base = Path(env.get("TMPDIR") or tempfile.gettempdir())
    added = {"TMPDIR": str(path / _TEMP)}
    for name, place in _COMPILED.items():
        if name not in env:
            added[name] = str(base / place.format(user=user))
    return added


def note_leader(path: Path, leader: ProcessRef) -> None:
    """Write down the first process, as soon as it is there."""
    note = read(path)
    if note is not None:
        _write_server(path, Note(**{**vars(note), "leader": leader}))


def note_seen(path: Path, processes: Iterable[ProcessRef], shared: Iterable[str]) -> None:
    """Write down which processes there are, and the shared memory seen so far."""
    content = {"seen": [[r.pid, r.started] for r in processes], "shared": sorted(shared)}
    _write(path / _SEEN, content)


def read(path: Path) -> Note | None:
    """The note in a scratch folder of ours; None where there is none that can be read."""
    if not is_ours(path):
        return None
    try:
        server = json.loads((path / _SERVER).read_text(encoding="utf-8"))
        seen = _seen(path)
        return Note(
            tag=str(server["tag"]),
            owner=ProcessRef(*server["owner"]),
            leader=ProcessRef(*server["leader"]) if server["leader"] else None,
            boot=str(server["boot"]),
            shared_before=frozenset((str(n), int(i)) for n, i in server["shared_before"]),
            seen=frozenset(ProcessRef(*ref) for ref in seen["seen"]),
            shared=frozenset(map(str, seen["shared"])),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def all_paths(*bases: Path) -> list[Path]:
    """Every scratch folder of this user, in the given folders or where they are made."""
    bases = bases or (Path(tempfile.gettempdir()), _SHORT)
    return sorted(
        path
        for base in set(bases)
        for path in base.glob(f"{PREFIX}{'[0-9a-f]' * 8}")
        if is_ours(path) and (path / _TEMP).is_dir()
    )


def remove(path: Path) -> tuple[list[str], list[str]]:
    """Remove a scratch folder; what was removed and what went wrong."""
    problems: list[str] = []
    for _ in range(_MOST_TRIES):
        if len(problems) >= _TRIES:
            break
        if not is_ours(path):
            return [], []  # somebody else removed it, as the watcher does
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            continue  # somebody else is removing it right now; there is less of it each time
        except OSError as error:
            problems.append(f"{path} cannot be removed: {error.strerror}")
            continue
        return [str(path)], []
    return [], problems[-1:]


def is_ours(path: Path) -> bool:
    """Whether it is a real folder of this user, and not a link to one."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def boot_id() -> str:
    """A text that is new after each start of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _seen(path: Path) -> Any:
    try:
        return json.loads((path / _SEEN).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"seen": [], "shared": []}


def _write_server(path: Path, note: Note) -> None:
    leader = note.leader
    content = {
        "tag": note.tag,
        "owner": [note.owner.pid, note.owner.started],
        "leader": [leader.pid, leader.started] if leader else None,
        "boot": note.boot,
        "shared_before": sorted(note.shared_before),
    }
    _write(path / _SERVER, content)


def _write(path: Path, content: Any) -> None:
    """In one step: who reads it sees the old text or the new one."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content), encoding="utf-8")
    new.replace(path)
