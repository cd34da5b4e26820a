"""The contract between a trainer and its host: job.json in, events, checkpoints and a result out. Standard library only."""

import hashlib
import json
import math
import os
import shutil
import tarfile
from pathlib import Path

JOB = Path(os.environ.get("JOB_DIR", "/job"))
OUT = JOB / "out"
CHECKPOINTS = JOB / "ckpt"
LINE_BYTES_MAX = 4096
MESSAGE_CHARS_MAX = 1000
CHECKPOINTS_KEPT = 2


def read_job():
    return json.loads((JOB / "job.json").read_text())


def say(event):
    """Appends one event. A line is written whole, so that the host never reads half of one for an event."""
    known = {name: value for name, value in event.items() if is_known(value)}
    # With escapes, a text in another alphabet would take twice as many bytes, and a long one would be dropped.
    line = json.dumps(known, ensure_ascii=False) + "\n"
    if len(line.encode()) > LINE_BYTES_MAX:
        return
    with open(OUT / "events.jsonl", "a", encoding="utf-8") as file:
        file.write(line)


def is_known(value):
    """False for None, NaN and infinity. JSON has no NaN and no infinity, which a training that diverges reports as its loss."""
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def message(text, level="info"):
    # Colours of a terminal and broken characters would be escaped, or could not be written at all.
    shown = "".join(char if char.isprintable() or char == "\n" else " " for char in text[:MESSAGE_CHARS_MAX])
    # The host counts a character beyond 16 bits twice, such as an emoji.
    cut = shown.encode("utf-16-le")[: 2 * MESSAGE_CHARS_MAX].decode("utf-16-le", "ignore")
    say({"type": "message", "level": level, "message": cut})


def metrics(step, total_steps, figures):
    say({"type": "metrics", "step": step, "total_steps": total_steps, **figures})


def pack_checkpoint(folder, step):
    """Packs the folder of a checkpoint into one file. The file gets its name only when it is complete, and its event is sent after that."""
    name = f"step-{step}.tar"
    partial = CHECKPOINTS / "partial"
    with tarfile.open(partial, "w") as archive:
        archive.add(folder, arcname=".")
    os.replace(partial, CHECKPOINTS / name)
    say({"type": "checkpoint", "step": step, "file": name})
    # Keeps more than the newest checkpoint, because the host may still read the one before.
    for old in sorted(CHECKPOINTS.glob("step-*.tar"), key=lambda path: path.stat().st_mtime)[:-CHECKPOINTS_KEPT]:
        old.unlink()


def unpack_checkpoint(file, folder):
    """Unpacks the checkpoint from which a job continues. Accepts only files and folders below `folder`: Python before 3.11.4 has no filter for that."""
    shutil.rmtree(folder, ignore_errors=True)
    root = Path(folder).resolve()
    with tarfile.open(file) as archive:
        for member in archive:
            path = (root / member.name).resolve()
            if not (member.isreg() or member.isdir()) or not (path == root or root in path.parents):
                raise ValueError(f"the checkpoint has a member that is no file or folder of its own: {member.name}")
            archive.extract(member, folder)


def write_result(names):
    """Writes the manifest. It must be written last, because it tells the host that the files are complete."""
    files = [{"name": name, "bytes": (OUT / name).stat().st_size, "sha256": digest(OUT / name)} for name in names]
    partial = OUT / "result.json.partial"
    partial.write_text(json.dumps({"files": files}))
    os.replace(partial, OUT / "result.json")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
