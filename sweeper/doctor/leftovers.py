"""Servers of earlier sweeps: which are left over, and their end.

A server that a sweep is running now is no leftover. Its scratch folder says who
its owner is; where the folder is lost, its watcher shows that it is looked after.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from sweeper.doctor.findings import Findings, Server, counted
from sweeper.servers import scratch, tagged
from sweeper.servers.ending import end_left_behind
from sweeper.servers.shared_memory import FOLDER
from sweeper.servers.tagged import ProcessRef

WATCHER = "sweeper.servers.watcher"
# A folder without a readable note may be one that is just being made.
_YOUNG = 60.0


def find_servers(bases: Iterable[Path] = ()) -> list[Server]:
    """Every server of this user that has a process or a scratch folder.

    Args:
        bases: where scratch folders are looked for; by default where they are made.
    """
    processes = tagged_processes()
    folders = set(scratch.all_paths(*bases))
    for refs in processes.values():
        folders |= {folder for ref in refs if (folder := _folder_of(ref.pid)) is not None}
    servers = []
    unclaimed = dict(processes)
    watched = watched_tags()
    for folder in sorted(folders):
        note = scratch.read(folder)
        if note is not None:
            tag = note.tag
            servers.append(_server(note, folder, unclaimed.pop(tag, ()), tag in watched))
        elif _age(folder) > _YOUNG:
            servers.append(Server("", folder=folder))
    for tag, refs in sorted(unclaimed.items()):
        servers.append(Server(tag, tuple(refs), running=tag in watched))
    return servers


def tagged_processes() -> Mapping[str, list[ProcessRef]]:
    """The living processes of this user that carry a tag, by tag."""
    found: dict[str, list[ProcessRef]] = {}
    for pid, entry in tagged.table().items():
        if not entry.zombie and _is_ours(pid) and (tag := tagged.tag_of(pid)):
            found.setdefault(tag, []).append(entry.ref)
    return found


def watched_tags() -> set[str]:
    """The tags of servers whose watcher is alive."""
    found = set()
    for pid in tagged.all_pids():
        words = _words(pid)
        if WATCHER in words and _is_ours(pid):
            found |= set(words[words.index(WATCHER) + 1 :][:1])
    return found


def clean(findings: Findings) -> list[str]:
    """End the leftovers that carry our tag, remove our files; what was done, in words."""
    done = []
    for server in findings.leftovers:
        if not server.tag:
            assert server.folder is not None
            removed, problems = scratch.remove(server.folder)
            done += [*(f"removed {path}" for path in removed), *problems]
            continue
        before = len(server.processes)
        stopped = end_left_behind(server.tag, folder=server.folder)
        if before:
            done.append(f"ended the {counted(before, 'process', 'processes')} of {server.tag}")
        done += [*(f"removed {path}" for path in stopped.removed), *stopped.problems]
    return done


def _server(
    note: scratch.Note, folder: Path, carriers: Iterable[ProcessRef], watched: bool
) -> Server:
    this_boot = note.boot == scratch.boot_id()
    seen = {ref for ref in note.seen if this_boot and ref.alive()}
    return Server(
        tag=note.tag,
        processes=tuple(sorted(seen | set(carriers), key=lambda ref: ref.pid)),
        folder=folder,
        shared=tuple(sorted(name for name in note.shared if (FOLDER / name).exists())),
        owner=note.owner,
        running=watched or (this_boot and note.owner.alive()),
    )


def _folder_of(pid: int) -> Path | None:
    """The scratch folder that a process was given, wherever its owner's temporary folder is."""
    start = b"TMPDIR="
    for word in tagged.environment(pid):
        if word.startswith(start):
            folder = Path(os.fsdecode(word[len(start) :])).parent
            return folder if scratch.read(folder) is not None else None
    return None


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def _is_ours(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}").stat().st_uid == os.getuid()
    except OSError:
        return False


def _age(folder: Path) -> float:
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return 0.0
