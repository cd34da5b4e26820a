"""Trains a LoRA or QLoRA adapter as /job/job.json says, and honours the contract of trainers."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, TrainerCallback
from trl import SFTConfig, SFTTrainer

import contract

# The folder in which the Trainer keeps its own checkpoints. Only packed ones leave the container.
WORK = Path(os.environ.get("WORK_DIR", "/tmp/work"))
CHECKPOINT_SECONDS = int(os.environ.get("CHECKPOINT_SECONDS", "300"))
TOKENS_MAX = int(os.environ.get("TOKENS_MAX", "2048"))
BATCH = int(os.environ.get("BATCH", "4"))
STEPS_BETWEEN_UPDATES = int(os.environ.get("GRADIENT_ACCUMULATION", "4"))
LEARNING_RATE = float(os.environ.get("LEARNING_RATE", "2e-4"))
# The adapter itself: what a server loads.
RESULT_FILES = ["adapter_config.json", "adapter_model.safetensors"]


class Reporter(TrainerCallback):
    """Sends figures, asks for checkpoints by time, and stops the training after SIGTERM."""

    def __init__(self):
        self.must_stop = False
        self.saved_at = time.monotonic()
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, _signal, _frame):
        self.must_stop = True

    def on_step_end(self, args, state, control, **_kwargs):
        is_due = time.monotonic() - self.saved_at >= CHECKPOINT_SECONDS
        if is_due or self.must_stop:
            control.should_save = True
        if self.must_stop:
            control.should_training_stop = True

    def on_log(self, args, state, control, logs=None, **_kwargs):
        logs = logs or {}
        if "loss" not in logs:
            return
        figures = {"loss": logs.get("loss"), "lr": logs.get("learning_rate"), "epoch": logs.get("epoch")}
        tokens = logs.get("num_tokens")
        contract.metrics(state.global_step, state.max_steps, {**figures, "tokens": None if tokens is None else int(tokens)})

    def on_save(self, args, state, control, **_kwargs):
        self.saved_at = time.monotonic()
        contract.pack_checkpoint(WORK / f"checkpoint-{state.global_step}", state.global_step)


def load_model(job, has_gpu):
    quantization = None
    if job["method"] == "qlora":
        quantization = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
    return AutoModelForCausalLM.from_pretrained(
        job["base_model_path"],
        dtype=torch.bfloat16 if has_gpu else torch.float32,
        quantization_config=quantization,
        device_map="auto" if has_gpu else None,
    )


def settings(job, has_gpu):
    return SFTConfig(
        output_dir=str(WORK),
        num_train_epochs=job["epochs"],
        seed=job["seed"],
        data_seed=job["seed"],
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=STEPS_BETWEEN_UPDATES,
        learning_rate=LEARNING_RATE,
        max_length=TOKENS_MAX,
        gradient_checkpointing=has_gpu,
        bf16=has_gpu,
        use_cpu=not has_gpu,
        logging_steps=1,
        # The Trainer makes no checkpoints by itself: Reporter asks for them at intervals of time.
        save_strategy="no",
        save_total_limit=1,
        report_to="none",
        disable_tqdm=True,
    )


def main():
    job = contract.read_job()
    has_gpu = torch.cuda.is_available()
    reporter = Reporter()
    contract.message(f"Loading {job['base_model']}.")
    lora = job["lora"]
    trainer = SFTTrainer(
        model=load_model(job, has_gpu),
        args=settings(job, has_gpu),
        train_dataset=load_dataset("json", data_files=job["train_file"], split="train"),
        processing_class=AutoTokenizer.from_pretrained(job["base_model_path"]),
        peft_config=LoraConfig(
            task_type="CAUSAL_LM",
            r=lora["r"],
            lora_alpha=lora["alpha"],
            lora_dropout=lora["dropout"],
            target_modules="all-linear",
        ),
        callbacks=[reporter],
    )
    resume = None
    if job["resume_file"] is not None:
        resume = WORK / f"checkpoint-{job['resume_step']}"
        contract.unpack_checkpoint(job["resume_file"], resume)
        contract.message(f"Going on from step {job['resume_step']}.")
    trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    trainer.model.save_pretrained(contract.OUT)
    contract.write_result(RESULT_FILES)
    contract.message("The training was stopped early." if reporter.must_stop else "The training is complete.")


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        # The last event says why, because customers do not see the log.
        contract.message(f"{type(error).__name__}: {error}", "error")
        print(error, file=sys.stderr)
        sys.exit(1)
