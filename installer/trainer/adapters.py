"""Turns the logs of other trainers into events of the contract, line by line.

  python adapters.py llama-factory < saves/trainer_log.jsonl >> /job/out/events.jsonl
  python adapters.py hugging-face < trainer_log.txt >> /job/out/events.jsonl
"""

import ast
import json
import math
import re
import sys

# An entry in the output of the Hugging Face Trainer: a Python dictionary, alone on a line or after a progress bar.
DICTIONARY = re.compile(r"\{'[^{}]*\}")


def from_llama_factory(line):
    """The event for a line of LLaMA-Factory's trainer_log.jsonl; None if the line is not about a step."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    if not isinstance(entry, dict) or not isinstance(entry.get("current_steps"), int):
        return None
    figures = {
        "step": entry["current_steps"],
        "total_steps": entry.get("total_steps"),
        "loss": entry.get("loss"),
        "lr": entry.get("lr", entry.get("learning_rate")),
        "epoch": entry.get("epoch"),
    }
    return event_of(figures)


def from_hugging_face(line, step):
    """The event for a line of the Trainer's output; None if it has no loss. `step` is the number of the last event, which the log does not contain."""
    found = DICTIONARY.search(line)
    if found is None:
        return None
    try:
        entry = ast.literal_eval(found.group())
    except (ValueError, SyntaxError):
        return None
    figures = {name: number(entry.get(key)) for name, key in (("loss", "loss"), ("lr", "learning_rate"), ("epoch", "epoch"))}
    if figures["loss"] is None:
        return None
    return event_of({"step": step + 1, **figures})


def event_of(figures):
    known = {name: value for name, value in figures.items() if isinstance(value, (int, float)) and math.isfinite(value)}
    return {"type": "metrics", **known}


def number(value):
    """Newer versions print their figures as texts."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def main(kind):
    # A program may print bytes that are no text. Its next lines are read all the same.
    sys.stdin.reconfigure(errors="replace")
    step = 0
    for line in sys.stdin:
        event = from_llama_factory(line) if kind == "llama-factory" else from_hugging_face(line, step)
        if event is None:
            continue
        step = event["step"]
        print(json.dumps(event), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] not in (["llama-factory"], ["hugging-face"]):
        sys.exit(__doc__)
    main(sys.argv[1])
