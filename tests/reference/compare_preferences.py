"""Compares steps of preference tuning with TRL's: losses, and of KTO divergences and rewards, of a small
random Llama, all data in each batch, with a reference of its own (--reference-load). Needs: pip install
torch transformers trl.

    venv/bin/python tests/reference/compare_preferences.py
"""
import json
import os
import subprocess
import tempfile

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer

HERE = os.path.dirname(os.path.abspath(__file__))
PERILUNE = os.environ.get("PERILUNE", os.path.join(HERE, "../../build/perilune"))
LLAMA = os.path.join(HERE, "../../models/llama.lua")
VOCAB, SEQ, BETA, RATE, STEPS = 400, 24, 0.3, 2e-3, 6
MOST = 2e-5  # f32's rounding, which grows over steps
WORDS = "the moon is a body that goes around planet once each month tide orbit low high".split()


def run(*arguments):
    done = subprocess.run([PERILUNE, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write(path, rows):
    with open(path, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")


def make_model(seed):
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, max_position_embeddings=SEQ, initializer_range=0.1, tie_word_embeddings=False,
        bos_token_id=None, eos_token_id=0, pad_token_id=0))


def words(i, n):
    return "".join(" " + WORDS[(i * 7 + 3 * k * k + k) % len(WORDS)] for k in range(n))


def optimizer_of(model):
    """Perilune's default for this model: norms do not decay."""
    weights = [[p for p in model.parameters() if (p.dim() > 1) == large] for large in (True, False)]
    groups = [{"params": weights[0], "weight_decay": 0.1}, {"params": weights[1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-8)


def train_by_trl(kind, folder, rows, tokenizer, settings):
    """What each step says before its update."""
    told = []
    trainer, config = (KTOTrainer, KTOConfig) if kind == "kto" else (DPOTrainer, DPOConfig)

    class Recorder(trainer):
        def compute_loss(self, *arguments, **named):
            loss = super().compute_loss(*arguments, **named)
            metrics = {name: float(values[-1]) for name, values in self._metrics["train"].items()}
            told.append({"loss": float(loss), "kl": metrics.get("kl")})
            return loss

    if kind == "kto":
        settings = {"train_sampling_strategy": "sequential", **settings}
    arguments = config(
        output_dir=os.path.join(folder, "trl"), per_device_train_batch_size=len(rows), max_steps=STEPS, beta=BETA,
        max_length=SEQ, learning_rate=RATE, lr_scheduler_type="constant", max_grad_norm=1.0, bf16=False, fp16=False,
        gradient_checkpointing=False, use_cpu=True, report_to="none", logging_steps=1, save_strategy="no",
        disable_tqdm=True, **settings)
    model = make_model(1)
    Recorder(model, ref_model=make_model(2), args=arguments, train_dataset=Dataset.from_list(rows),
             processing_class=tokenizer, optimizers=(optimizer_of(model), None)).train()
    return told


def compare(name, kind, folder, rows, data, tokenizer, trl, ours):
    theirs = train_by_trl(kind, folder, rows, tokenizer, trl)
    n_rows = len(rows) * (1 if kind == "kto" else 2)
    log = os.path.join(folder, "log.jsonl")
    own, other = (os.path.join(folder, f) for f in ("1.safetensors", "2.safetensors"))
    worst = 0
    for layout in (["--micro-batch", "2"], ["--micro-batch", "2", "--mesh", "d=2,p=2"]):
        run("train", LLAMA, "--set-from", own, "--load", own, "--reference-load", other, "--data", data, "--tokenizer",
            os.path.join(folder, "tok.json"), "--eot", "<|endoftext|>", "--set", f"seq={SEQ}", "--set", f"beta={BETA}",
            "--global-batch", str(n_rows), *layout, "--val-fraction", "0", "--lr", str(RATE), "--lr-schedule",
            "constant", "--warmup", "0", "--steps", str(STEPS), "--log", log,
            *[part for setting in ours for part in ("--set", setting)])
        with open(log, encoding="utf-8") as lines:
            got = [json.loads(line) for line in lines]
        assert len(got) == len(theirs) == STEPS
        for a, b in zip(got, theirs):
            worst = max(worst, abs(a["loss"] - b["loss"]) / max(1, abs(b["loss"])))
            if b["kl"] is not None and "kl" in a["values"]:
                worst = max(worst, abs(a["values"]["kl"] - b["kl"]) / max(1, b["kl"]))
    kl = [round(b["kl"], 3) for b in theirs] if kind == "kto" else ""
    print(f"{name}: losses from {theirs[0]['loss']:.6g} to {theirs[-1]['loss']:.6g} {kl}: {worst:.2g} apart")
    assert worst < MOST, [(a["loss"], b["loss"]) for a, b in zip(got, theirs)]


def main():
    with tempfile.TemporaryDirectory() as folder:
        texts = os.path.join(folder, "texts.jsonl")
        write(texts, [{"text": words(i, 20)} for i in range(200)])
        run("tokenizer", "train", texts, "--vocab", str(VOCAB), "--special-token", "<|endoftext|>", "-o",
            os.path.join(folder, "tok.json"))
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tok.json"),
                                            eos_token="<|endoftext|>", pad_token="<|endoftext|>")
        for seed in (1, 2):
            make_model(seed).save_pretrained(os.path.join(folder, str(seed)))
            run("import", os.path.join(folder, str(seed)), "-o", os.path.join(folder, f"{seed}.safetensors"))

        answers = [{"prompt": words(i, 3 + i % 4), "completion": words(5 * i + 1, 2 + (3 * i) % 5),
                    "label": i % 3 != 1} for i in range(8)]
        pairs = [{"prompt": words(i, 3 + i % 4), "chosen": words(5 * i + 1, 4), "rejected": words(3 * i + 2, 2 + i % 5)}
                 for i in range(8)]
        of_answers, of_pairs = (os.path.join(folder, f) for f in ("answers.jsonl", "pairs.jsonl"))
        write(of_answers, answers)
        write(of_pairs, pairs)
        for name, trl, ours in (
                ("kto", {}, []),
                ("kto with weights", {"desirable_weight": 0.7, "undesirable_weight": 1.4},
                 ["desirable_weight=0.7", "undesirable_weight=1.4"]),
                ("apo_zero_unpaired", {"loss_type": "apo_zero_unpaired"}, ["preference=apo_zero_unpaired"])):
            compare(name, "kto", folder, answers, of_answers, tokenizer, trl, ["preference=kto", *ours])
        for name, trl, ours in (
                ("dpo", {}, []), ("robust", {"label_smoothing": 0.1}, ["label_smoothing=0.1"]), ("hinge", {}, []),
                ("ipo", {}, []), ("sigmoid_norm", {}, []), ("apo_zero", {}, []), ("apo_down", {}, []),
                ("nca_pair", {}, []), ("sppo_hard", {}, [])):
            trl = {"loss_type": "sigmoid" if name == "dpo" else name, **trl}
            compare(name, "dpo", folder, pairs, of_pairs, tokenizer, trl, [f"preference={name}", *ours])
        # All chosen answers have as many tokens, so that both means over tokens are the same.
        compare("dpo with rpo_alpha", "dpo", folder, pairs, of_pairs, tokenizer,
                {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.2]}, ["preference=dpo", "rpo_alpha=0.2"])


main()
