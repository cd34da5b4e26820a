"""What a trainer leaves for its host: whole lines, whole checkpoints, a manifest with right hashes."""

import hashlib
import json
import os
import tarfile
import tempfile
import unittest
from pathlib import Path

FOLDER = tempfile.TemporaryDirectory()
os.environ["JOB_DIR"] = FOLDER.name

import contract  # noqa: E402  (it reads JOB_DIR)

contract.OUT.mkdir()
contract.CHECKPOINTS.mkdir()


def last_event():
    return json.loads((contract.OUT / "events.jsonl").read_text().splitlines()[-1])


class Contract(unittest.TestCase):
    def test_figures_without_a_number_are_left_out(self):
        contract.metrics(3, 10, {"loss": float("nan"), "lr": 0.5, "epoch": None})
        self.assertEqual(last_event(), {"type": "metrics", "step": 3, "total_steps": 10, "lr": 0.5})

    def test_a_message_is_cut_to_what_the_host_reads(self):
        contract.message("x" * 9000, "error")
        self.assertEqual(last_event(), {"type": "message", "level": "error", "message": "x" * 1000})

    def test_a_long_message_in_any_alphabet_arrives_whole(self):
        for char in ("é", "語", '"', "\n"):
            contract.message(char * 1000)
            self.assertEqual(last_event()["message"], char * 1000)
        # The host counts these twice, and takes half of one for none.
        contract.message("🙂" * 1000)
        self.assertEqual(last_event()["message"], "🙂" * 500)
        contract.message("e" + "🙂" * 1000)
        self.assertEqual(last_event()["message"], "e" + "🙂" * 499)

    def test_control_characters_and_broken_ones_become_spaces(self):
        contract.message("\x1b[31mno\x00 " + "\udc80" + "é")
        self.assertEqual(last_event()["message"], " [31mno   é")

    def test_a_checkpoint_is_one_file_and_comes_back_as_it_was(self):
        source = Path(FOLDER.name) / "source"
        (source / "deep").mkdir(parents=True)
        (source / "deep" / "state").write_text("state")
        for step in (1, 2, 3):
            contract.pack_checkpoint(source, step)
        self.assertEqual(last_event(), {"type": "checkpoint", "step": 3, "file": "step-3.tar"})
        self.assertEqual(sorted(path.name for path in contract.CHECKPOINTS.iterdir()), ["step-2.tar", "step-3.tar"])
        back = Path(FOLDER.name) / "back"
        contract.unpack_checkpoint(contract.CHECKPOINTS / "step-3.tar", back)
        self.assertEqual((back / "deep" / "state").read_text(), "state")

    def test_a_checkpoint_with_a_link_or_a_path_that_leads_out_of_its_folder_is_refused(self):
        outside = tarfile.TarInfo("../outside")
        absolute = tarfile.TarInfo("/outside")
        link = tarfile.TarInfo("link")
        link.type = tarfile.SYMTYPE
        link.linkname = "/etc"
        for member in (outside, absolute, link):
            archive_path = contract.CHECKPOINTS / "evil.tar"
            with tarfile.open(archive_path, "w") as archive:
                archive.addfile(member)
            with self.assertRaisesRegex(ValueError, member.name):
                contract.unpack_checkpoint(archive_path, Path(FOLDER.name) / "evil")
            archive_path.unlink()

    def test_the_manifest_has_sizes_and_hashes(self):
        (contract.OUT / "adapter").write_bytes(b"adapter")
        contract.write_result(["adapter"])
        manifest = json.loads((contract.OUT / "result.json").read_text())
        self.assertEqual(manifest, {"files": [{"name": "adapter", "bytes": 7, "sha256": hashlib.sha256(b"adapter").hexdigest()}]})


if __name__ == "__main__":
    unittest.main()
