"""The adapters, on logs as the trainers write them."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).parent


def events(kind, fixture):
    with open(HERE / "fixtures" / fixture, encoding="utf-8") as log:
        run = subprocess.run([sys.executable, "-B", HERE / "adapters.py", kind], stdin=log, capture_output=True, check=True, text=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


class Adapters(unittest.TestCase):
    def test_llama_factory(self):
        self.assertEqual(
            events("llama-factory", "llama-factory.jsonl"),
            [
                {"type": "metrics", "step": 5, "total_steps": 150, "loss": 1.4521, "lr": 1e-05, "epoch": 0.1},
                {"type": "metrics", "step": 10, "total_steps": 150, "loss": 1.3187, "lr": 2e-05, "epoch": 0.2},
                {"type": "metrics", "step": 150, "total_steps": 150, "epoch": 3.0},
            ],
        )

    def test_hugging_face(self):
        self.assertEqual(
            events("hugging-face", "hugging-face.txt"),
            [
                {"type": "metrics", "step": 1, "loss": 5.617, "lr": 0.01, "epoch": 0.4},
                {"type": "metrics", "step": 2, "loss": 5.4316, "lr": 0.009444444444444445, "epoch": 0.8},
            ],
        )

    def test_a_line_that_is_no_text_ends_nothing(self):
        log = b"caf\xe9\n{'loss': 2.0}\n"
        environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
        run = subprocess.run([sys.executable, "-B", HERE / "adapters.py", "hugging-face"], input=log, capture_output=True, env=environment)
        self.assertEqual((run.returncode, json.loads(run.stdout or "null")), (0, {"type": "metrics", "step": 1, "loss": 2.0}))

    def test_other_kinds_are_refused(self):
        run = subprocess.run([sys.executable, "-B", HERE / "adapters.py", "other"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn("llama-factory", run.stderr)


if __name__ == "__main__":
    unittest.main()
