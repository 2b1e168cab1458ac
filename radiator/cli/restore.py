"""``radiator restore``: verify a backup, and create a data directory from it."""

from __future__ import annotations

import os

import click

from radiator.cli.common import NOT_FOUND, OK, CommandFailed, json_option, progress, put_result, size
from radiator.words import counted


@click.command(short_help="Verify a backup, and create a data directory from it.")
@click.argument("backup", metavar="BACKUP")
@click.option("--to", "target", metavar="DIR", help="The data directory to create; it must be new or empty.")
@click.option("--verify-only", is_flag=True, help="Only verify every checksum of the backup.")
@json_option
def restore(backup: str, target: str | None, verify_only: bool, as_json: bool) -> int:
    """Create the data directory DIR from a BACKUP of `radiator backup`.

    Every file is compared with its checksum before anything is written. Damaged files are reported, and the exit code
    is then 6.
    """
    from radiator.clock import rfc3339
    from radiator.storage.files import FileSystem
    from radiator.upkeep.copying import Copier
    from radiator.upkeep.manifest import MANIFEST
    from radiator.upkeep.restore import restore as restore_to
    from radiator.upkeep.restore import verify

    if verify_only == (target is not None):
        raise click.UsageError("expected either --to DIR or --verify-only")
    path, fs = os.path.realpath(backup), FileSystem()
    if not os.path.exists(os.path.join(path, MANIFEST)):
        raise CommandFailed(NOT_FOUND, f"{backup}: no backup here; expected {MANIFEST}, which a backup writes last")
    with progress() as bar:
        task = bar.add_task("verifying" if verify_only else "restoring", total=None, note="")
        copier = Copier(fs, progress=lambda done: bar.update(task, advance=done))
        if target is None:
            manifest = verify(fs, path, copier, lambda total: bar.update(task, total=total))
        else:
            whole = os.path.realpath(target)
            manifest = restore_to(fs, path, whole, copier, lambda total: bar.update(task, total=total))
    fields = {
        "backup": path,
        "data_dir": target,
        "time_ns": manifest.time_ns,
        "files": len(manifest.files),
        "bytes": manifest.size_bytes,
        "offsets": sum(each.next_offset - each.first_offset for each in manifest.partitions),
    }
    done = "every checksum is right" if target is None else f"restored to {target}"
    files = f"{counted(len(manifest.files), 'file')}, {size(manifest.size_bytes)}"
    put_result(as_json, fields, f"{backup}: {done}; {files}, as of {rfc3339(manifest.time_ns)[:19]}Z")
    return OK
