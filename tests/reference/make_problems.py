"""Makes tests/data/benchmarks/{gsm8k,math}.*: made-up rows, and what EleutherAI's lm-evaluation-harness
makes of them and of make_benchmarks.py's tiny GPT-2, from its own task files: prompts, greedy texts, what is
extracted and whether it is right, without examples and with one, in the form that `perilune evaluate
--predictions` writes. And extracted.jsonl: what its filters take out of many texts, and which answers are
the same to it. And verl.parquet: rows of verl's form. Needs the same as make_benchmarks.py, whose model is read.

    venv/bin/python tests/reference/make_problems.py
"""
import itertools
import json
import os
import random
import tempfile

import lm_eval
import pyarrow
import pyarrow.parquet
import torch
from lm_eval.api.metrics import exact_match_hf_evaluate
from lm_eval.filters.extraction import RegexFilter
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks._yaml_loader import load_yaml
from lm_eval.tasks.hendrycks_math import utils as math
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from make_benchmarks import OUT, SEQ, TASKS, TOKENIZER, make_task, write_lines

LENGTH = 40
GSM8K = os.path.join(TASKS, "gsm8k/gsm8k.yaml")
MATH = os.path.join(TASKS, "hendrycks_math/hendrycks_math_algebra.yaml")
PROMPTS = {GSM8K: ("question", "Question: {}\nAnswer:"), MATH: ("problem", "Problem: {}\nAnswer:")}


def extract(kind, text):
    """What the harness makes of a text; None: nothing."""
    if kind in FILTERS:
        found = list(FILTERS[kind].apply([[text]], [{}]))[0][0]
        return None if found == "[invalid]" else found
    if kind == "boxed":
        try:
            box = math.last_boxed_only_string(text)
            return None if box is None else math.remove_boxed(box)
        except AssertionError:
            return None
    at = [i for i, c in enumerate(text) if c == "$"]
    return text if len(at) <= 1 else text[at[0] + 1:at[-1]]


def is_right(kind, found, answer):
    if found is None:
        return False
    if kind not in FILTERS:
        return math.is_equiv(found, answer)
    return bool(exact_match_hf_evaluate([found], [answer], **IGNORED)["exact_match"])


CONFIG = load_yaml(GSM8K)
FILTERS = {f["name"]: RegexFilter(**{k: v for k, v in f["filter"][0].items() if k != "function"})
           for f in CONFIG["filter_list"]}
IGNORED = {k: v for k, v in CONFIG["metric_list"][0].items() if k.startswith(("ignore", "regexes"))}


# --- texts and answers ---

TEXTS = [
    "", "no number", "#### 42", "#### -7", "####  5", "###### 8", "so 12.\n#### 1,234.50.\n#### 9", "#### .", "#### -",
    "#### - 3 #### ,", "#### 5%", "#### $3", "It costs $1,200.00 and then -$5.", "5 and 6.", "-", "--5", "-5-6", "a1b22c333",
    "3.", ".5", "$", "$.", "7 .", "1,2,3", "x = 10.\n", "minus -12, or -12.0!", "٣ and ４", "café 3 – 4", "$$", "$5$", "$5",
    "a $x$ b $y$ c", "the $\\boxed{3}$", "\\boxed{\\frac{1}{2}}", "\\boxed{1} then \\boxed{2", "\\boxed{a{b}c}d}", "\\boxed",
    "\\boxed 5", "\\boxed 5$ and \\boxed{6}", "\\boxed{7} \\boxed 8 $ 9", "\\fbox{3}", "\\boxed{\\boxed{4}}", "\\boxedx{5}",
    "\\boxed}{{5}", "\\boxed {5}", "} \\boxed{é{ü}} {", "\\boxed{}", "##\\boxed{#### 3}", "\\boxed{x}\\boxed",
    "\\boxed{1}\\fbox{2}", "\n \t 4 \u00a0", "[invalid]",
]
NUMBERS = ["42", "1,234", "$5", "5.", "5..", "5.\n", "x #### 5.", "#### 1 #### 2", "TEN", "ten", "É", "é", "-3", "", ".", "a\n", "3,", "#### ",
           "K", "İ", "ß", "5 ", "$.", ",#### 4"]
MATHS = [
    "\\frac12", "\\frac{1}{2}", "\\frac1{2}", "1/2", "0.5", ".5", "\\dfrac{1}{2}", "\\tfrac 12", "\\frac{1}2", "\\frac", "\\frac1",
    "\\fracé2", "\\frac{é}{2}", "\\frac 1 2", "\\sqrt3", "\\sqrt{3}", "\\sqrt", "\\sqrt 3", "\\sqrté", "\\sqrt[3]{8}", "2\\sqrt2\\sqrt{5}",
    "x=5", "5", "xy = 5", "xyz=5", "é=5", "éé=5", "a=b=5", "=5", "5 \\text{ cm}", "5\\text{cm}", "5\\text{ a}\\text{ b}", "\\text{ }",
    "90^\\circ", "90", "90^{\\circ}", "50\\%", "50", "\\$50", "1 , 2", "1,2", "\\left(1,2\\right)", "(1,2)", "{.5}", "{0.5}", "x .5",
    "x 0.5", "x0.5", "1\n0", "10", "1\\!0", "a\\\\b", "a\\b", "3/4", "\\frac{3}{4}", "-3/4", "\\frac{-3}{4}", "03/4", "+3/4", "-0/4",
    "1_0/4", "1__0/4", "_1/4", "1_/4", "1/2/3", "a/b", "/", "/2", "1/ 2", "1 /\t2", "", " ", "\\left", "0.50", "\\frac{1}{2", "x\\frac1",
    "\\frac\\frac12", "\\frac12\\frac", "\\sqrt\\frac12", "\\pi/2",
]


def make_extracted():
    lines = []
    for text in TEXTS:
        lines.append(dict(text=text, extracted={kind: extract(kind, text)
                                                for kind in (*FILTERS, "boxed", "dollar-match")}))
    for a, b in itertools.combinations_with_replacement(NUMBERS, 2):
        if is_right("strict-match", a, b):
            lines.append(dict(number=a, same=b))
    for a, b in itertools.combinations_with_replacement(MATHS, 2):
        if math.is_equiv(a, b):
            lines.append(dict(math=a, same=b))
    lines.append(dict(numbers=NUMBERS))  # of all other pairs none is the same
    lines.append(dict(maths=MATHS))
    write_lines(os.path.join(OUT, "extracted.jsonl"), lines)


def make_verl():
    """As verl's examples/data_preprocess/gsm8k.py has them."""
    rows = [dict(data_source="openai/gsm8k", prompt=[dict(role="user", content=asked)], ability="math",
                 reward_model=dict(style="rule", ground_truth=answer), extra_info=dict(split="test", index=i))
            for i, (asked, answer) in enumerate([("5 + 4?", "9"), ("Half of 25?", "12.5")])]
    write_lines(os.path.join(OUT, "verl.jsonl"), rows)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), os.path.join(OUT, "verl.parquet"))


# --- rows, and what the model writes ---

def spell(text):
    """As json_put_bytes has it."""
    if text is None:
        return "null"
    return '"' + "".join(c if " " <= c < "\x7f" and c not in '"\\' else "\\" + c if c in '"\\' else
                         json.dumps(c)[1:-1] if ord(c) > 127 else f"\\u{ord(c):04x}" for c in text) + '"'


def tell(file, line, task, sample, filters):
    prompt, answer, text = sample["prompt"], sample["answer"], sample["text"]
    found = ", ".join(f'"{name}": {{"right": {str(is_right(name, extract(name, text), answer)).lower()}, '
                      f'"extracted": {spell(extract(name, text))}}}' for name in filters)
    return (f'{{"path": "{file}", "line": {line}, "task": "{task}", "prompt": {json.dumps(prompt)}, '
            f'"answer": {spell(answer)}, "text": {spell(text)}, "filters": {{{found}}}}}\n')


def ask(lm, name, path, rows, shots):
    with tempfile.TemporaryDirectory() as folder:
        task = make_task(path, rows, folder)
        task.set_config("num_fewshot", shots)
        task.set_config("generation_kwargs", {"max_gen_toks": LENGTH}, update=True)
        done = lm_eval.evaluate(lm, {name: task}, bootstrap_iters=2, log_samples=True)
    found = {}
    for sample in done["samples"][name]:
        one = found.setdefault(sample["doc_id"], {})
        text = sample["resps"][0][0]
        one.update(prompt=sample["arguments"][0][0], answer=sample["doc"]["answer"], text=text)
        kind = "dollar-match" if path == MATH else sample["filter"]
        assert sample["exact_match"] == is_right(kind, extract(kind, text), one["answer"]), sample
        if path == GSM8K:
            assert sample["filtered_resps"] == [extract(kind, text) or "[invalid]"], sample
    return [found[i] for i in range(len(rows))], next(iter(done["results"].values()))


def write_text(model, tokenizer, prompt):
    tokens = tokenizer(prompt, return_tensors="pt").input_ids
    out = model.generate(tokens, max_new_tokens=LENGTH, do_sample=False, pad_token_id=0)
    return tokenizer.decode(out[0, tokens.shape[1]:], skip_special_tokens=True)


def search(model, tokenizer, path, n, wanted):
    """Questions to which the model happens to write a number."""
    drawn, rows = random.Random(n), []
    for _ in range(4000):
        words = drawn.choices(["apples", "3", "of", "17", "cost", "$5", "and", "2,000", "how", "many", "12", "=", "\\frac12", "$x$"],
                              k=drawn.randint(3, 9))
        text = write_text(model, tokenizer, PROMPTS[path][1].format(" ".join(words)))
        if text.isascii() and all(c >= " " for c in text) and wanted(text):
            rows.append((" ".join(words), text))
            if len(rows) == n:
                return rows
    raise SystemExit(f"{path}: {len(rows)} found")


def main():
    make_extracted()
    make_verl()
    model = GPT2LMHeadModel.from_pretrained(os.path.join(OUT, "model"), dtype=torch.float64).eval()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=TOKENIZER, eos_token="<|endoftext|>")
    lm = HFLM(pretrained=model, tokenizer=tokenizer, max_length=SEQ, batch_size=1, device="cpu",
              dtype=torch.float64)
    number = lambda text: extract("flexible-extract", text) is not None
    found = search(model, tokenizer, GSM8K, 3, number)
    gsm8k = [dict(question=q, answer=f"It is {i}.\n#### {extract('flexible-extract', t) if i else '1,000'}")
             for i, (q, t) in enumerate(found)]
    gsm8k.append(dict(question="How many? " + 30 * "12 apples and ", answer="12\n#### 12"))
    found = search(model, tokenizer, MATH, 3, lambda text: 0 < len(text) < 12 and "\\" not in text)
    maths = [dict(problem=q, level="Level 1", type="Algebra",
                  solution=f"So $x = \\boxed{{{t.strip() if i else '{x}'}}}$.") for i, (q, t) in enumerate(found)]
    shares = []
    for name, path, rows, filters in (("gsm8k", GSM8K, gsm8k, ["strict-match", "flexible-extract"]),
                                      ("math", MATH, maths, ["boxed", "dollar-match"])):
        write_lines(os.path.join(OUT, name + ".jsonl"), rows)
        for shots in (0, 1):
            used = rows if shots == 0 else rows[:2]
            file = f"{name}.jsonl" if shots == 0 else f"{name}.two.jsonl"
            samples, result = ask(lm, name, path, used, shots)
            with open(os.path.join(OUT, f"{name}.expect{shots}"), "w", encoding="utf-8") as out:
                out.writelines(tell(file, i + 1, name, sample, filters) for i, sample in enumerate(samples))
            for kind in filters:
                key = f"exact_match,{'none' if path == MATH else kind}"
                if key in result and kind != "boxed":
                    shares.append(f"{name} {shots} {kind} {float(result[key]):.9g} "
                                  f"{float(result[key.replace(',', '_stderr,')]):.9g}\n")
    with open(os.path.join(OUT, "written.txt"), "w", encoding="utf-8") as out:
        out.writelines(shares)


if __name__ == "__main__":
    main()
