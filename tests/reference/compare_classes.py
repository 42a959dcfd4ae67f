"""Compares what `perilune evaluate` tells of texts with transformers' BertForSequenceClassification and
RobertaForSequenceClassification, random ones made here: single texts and pairs of them, with their
types, cut or not, padded and packed, on one rank and on four; classes, sets of them and numbers
(problem_type); and the loss of a step with weights and smoothing, torch's cross_entropy. Needs: pip
install torch transformers tokenizers.

    venv/bin/python tests/reference/compare_classes.py
"""
import json
import os
import random
import shutil
import subprocess
import tempfile

import torch
from tokenizers import Tokenizer
from transformers import BertConfig, BertForSequenceClassification
from transformers import RobertaConfig, RobertaForSequenceClassification

HERE = os.path.dirname(os.path.abspath(__file__))
PERILUNE = os.environ.get("PERILUNE", os.path.join(HERE, "../../build/perilune"))
BERT = os.path.join(HERE, "../../models/bert.lua")
VOCAB, SEQ, PAD, CLS, SEP, N_TEXTS = 400, 48, 0, 1, 2, 64
MOST = 5e-6  # f32's rounding, of probabilities
WORDS = "the moon is a body that goes around a planet once each month tide orbit low high".split()
COMMON = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
              pad_token_id=PAD, initializer_range=0.3, hidden_dropout_prob=0,
              attention_probs_dropout_prob=0)


def run(*arguments):
    done = subprocess.run([PERILUNE, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write(path, rows):
    with open(path, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")


def text(rng):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 30)))


def make_model(kind, problem, n):
    torch.manual_seed(0)
    common = dict(COMMON, num_labels=n, problem_type=problem)
    if kind == "bert":
        return BertForSequenceClassification(BertConfig(max_position_embeddings=SEQ, type_vocab_size=2, **common))
    # Positions count from behind that of padding.
    config = RobertaConfig(max_position_embeddings=SEQ + PAD + 1, type_vocab_size=1, **common)
    return RobertaForSequenceClassification(config)


def encode(tokenizer, kind, row):
    """Tokens and types of a row; a place is left for padding behind each, as Perilune's rows have it."""
    between = 2 if kind == "roberta" else 1
    if "text" in row:
        ids = tokenizer.encode(row["text"], add_special_tokens=False).ids[:SEQ - 3]
        return [CLS, *ids, SEP], [0] * (len(ids) + 2)
    tokenizer.enable_truncation(SEQ - 3 - between, strategy="longest_first")
    both = tokenizer.encode(row["premise"], row["hypothesis"], add_special_tokens=False)
    tokenizer.no_truncation()
    parts = [[i for i, part in zip(both.ids, both.sequence_ids) if part == k] for k in (0, 1)]
    first = [CLS, *parts[0], *[SEP] * between]
    return [*first, *parts[1], SEP], [0] * len(first) + [1] * (len(parts[1]) + 1)


def logits_of(model, kind, rows):
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), longest), PAD)
    seen, types = torch.zeros_like(ids), torch.zeros_like(ids)
    for i, (tokens, kinds) in enumerate(rows):
        ids[i, :len(tokens)] = torch.tensor(tokens)
        types[i, :len(tokens)] = torch.tensor(kinds)
        seen[i, :len(tokens)] = 1
    more = {"token_type_ids": types} if kind == "bert" else {}
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=seen, **more).logits.double()


def expected(model, problem, logits, rows):
    """What is told of each text, and the mean loss, by the classes' labels (not by the model's own)."""
    labels = [row.get("labels", row.get("label")) for row in rows]
    if problem == "regression":
        wanted = torch.tensor(labels).double().reshape(logits.shape)
        return logits, float(torch.nn.functional.mse_loss(logits, wanted))
    if problem == "multi_label_classification":
        wanted = torch.tensor(labels).double()
        return torch.sigmoid(logits), float(torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted))
    return torch.softmax(logits, -1), float(torch.nn.functional.cross_entropy(logits, torch.tensor(labels)))


def told_of(line, problem):
    said = json.loads(line)
    if problem != "regression":
        return said["probabilities"]
    return said["labels"] if "labels" in said else [said["label"]]


def compare_weighed(base, logits, rows):
    """A step of all texts, whose classes count unlike each other."""
    weights = [1, 3.5, 0.25]
    wanted = float(torch.nn.functional.cross_entropy(logits, torch.tensor([row["label"] for row in rows]),
                                                     weight=torch.tensor(weights).double(), label_smoothing=0.1))
    log = base[base.index("--load") + 1] + ".jsonl"
    for layout in ([], ["--mesh", "t=2,d=2"]):
        run("train", *base[1:], "--micro-batch", "4", "--global-batch", str(len(rows) // 8 * 8), "--steps", "1",
            "--set", "class_weights=1,3.5,0.25", "--set", "class_smoothing=0.1", "--val-fraction", "0", "--lr", "0",
            "--seed", "1", "--log", log, *layout)
        with open(log, encoding="utf-8") as lines:
            got = json.loads(lines.readlines()[-1])["loss"]
        print(f"weights and smoothing, {' '.join(layout)}: a loss of {got:.8g}, torch's {wanted:.8g}")
        assert abs(got - wanted) < 1e-5 * wanted


def compare(kind, folder, tokenizer, rows, name, problem=None, n=3):
    weights, data, told = (os.path.join(folder, f) for f in ("w.safetensors", "data.jsonl", "told.jsonl"))
    write(data, rows)
    model = make_model(kind, problem, n).eval()
    model.save_pretrained(os.path.join(folder, kind))
    run("import", os.path.join(folder, kind), "-o", weights)
    logits = logits_of(model, kind, [encode(tokenizer, kind, row) for row in rows])
    wanted, loss = expected(model, problem, logits, rows)
    name += f", {problem} of {n}" if problem else ""
    base = ["evaluate", BERT, "--set-from", weights, "--load", weights, "--tokenizer",
            os.path.join(folder, "tok.json"), "--bos", "[CLS]", "--eot", "[SEP]", "--data", data]
    if kind == "bert":
        base += ["--set", f"sep_token={SEP}"]
    for layout in (["--micro-batch", "4"], ["--micro-batch", "4", "--mesh", "t=2,c=2"]):
        run(*base, *layout, "--predictions", told)
        with open(told, encoding="utf-8") as lines:
            got = torch.tensor([told_of(line, problem) for line in lines]).double()
        worst = float((got - wanted).abs().max() / max(1, float(wanted.abs().max())))
        print(f"{kind}, {name}, {' '.join(layout)}: {worst:.2g}")
        assert worst < MOST
    packed = json.loads(run(*base, "--micro-batch", "4", "--pack", "--json"))
    packed = packed["numbers"][0]["squared_error"] if problem == "regression" else packed["classes"][0]["loss"]
    print(f"{kind}, {name}, packed: a loss of {packed:.8g}, transformers' {loss:.8g}")
    assert abs(packed - loss) < MOST * loss
    if problem is None and "text" in rows[0]:
        compare_weighed(base, logits, rows)
    shutil.rmtree(os.path.join(folder, "again"), ignore_errors=True)
    run("export", weights, "--dtype", "f32", "-o", os.path.join(folder, "again"))
    again = type(model).from_pretrained(os.path.join(folder, "again"))
    assert again.config.problem_type == problem and again.config.num_labels == n
    for key, tensor in model.state_dict().items():
        if "position_ids" not in key:
            assert torch.equal(tensor, again.state_dict()[key]), key


def main():
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        texts = [text(rng) for _ in range(2 * N_TEXTS)]
        write(os.path.join(folder, "texts.jsonl"), [{"text": t} for t in texts])
        special = [a for name in ("[PAD]", "[CLS]", "[SEP]") for a in ("--special-token", name)]
        run("tokenizer", "train", os.path.join(folder, "texts.jsonl"), "--vocab", str(VOCAB), *special, "-o",
            os.path.join(folder, "tok.json"))
        tokenizer = Tokenizer.from_file(os.path.join(folder, "tok.json"))
        single = [{"text": t, "label": rng.randrange(3)} for t in texts[:N_TEXTS]]
        pairs = [{"premise": a, "hypothesis": b, "label": rng.randrange(3)}
                 for a, b in zip(texts[:N_TEXTS], texts[N_TEXTS:])]
        for kind in ("bert", "roberta"):
            compare(kind, folder, tokenizer, single, "single texts")
            compare(kind, folder, tokenizer, pairs, "pairs")
            some = [{**row, "label": None, "labels": [float(rng.random() < 0.4) for _ in range(5)]} for row in single]
            compare(kind, folder, tokenizer, some, "single texts", "multi_label_classification", 5)
            scores = [{**row, "label": round(rng.uniform(-1, 5), 2)} for row in pairs]
            compare(kind, folder, tokenizer, scores, "pairs", "regression", 1)
            scores = [{**row, "labels": [rng.uniform(-1, 5), rng.uniform(-1, 5)]} for row in single]
            compare(kind, folder, tokenizer, scores, "single texts", "regression", 2)


main()
