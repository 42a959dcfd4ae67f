"""Makes tests/data/benchmarks: made-up rows in the forms of published benchmarks, a tiny GPT-2, and what
EleutherAI's lm-evaluation-harness makes of both, from its own task files: each question's prompts, choices
and log-probabilities, without examples and with one, in the form that `perilune evaluate --predictions`
writes, and the shares of right ones. Needs: pip install lm-eval torch transformers (made with lm-eval 0.4.13,
torch 2.15, transformers 5.24; HF_DATASETS_OFFLINE=1 does).

    venv/bin/python tests/reference/make_benchmarks.py
"""
import json
import os
import tempfile

import lm_eval
import pyarrow
import pyarrow.parquet
import torch
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks._yaml_loader import load_yaml
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "../data/benchmarks")
TOKENIZER = os.path.join(HERE, "../data/tokenizers/qwen2.json")
TASKS = os.path.join(os.path.dirname(lm_eval.__file__), "tasks")
SEQ = 160  # some prompts with an example do not fit

# NAME: where the harness has it, and rows of its form; the first two are the ones that are told with the
# other one before them.
ROWS = {
    "hellaswag": ("hellaswag/hellaswag.yaml", [
        dict(ind=1, activity_label="Skipping stones", ctx_a="A boy stands by the lake.", ctx_b="he Then Picks up",
             ctx="A boy stands by the lake. he Then Picks up",
             endings=["a flat stone and throws it.", "the lake and  folds it up.", " the sun [title] puts it away.",
                      "a  horse that sings."], label="0"),
        dict(ind=2, activity_label="Home and Garden", ctx_a="[header] How to water a fern [title] Look at it.",
             ctx_b="", ctx="[header] How to water a fern [title] Look at it. ",
             endings=["[step] Touch the soil [sub]first.", "Shout at the fern.", "Paint it [red", "Run a mile."],
             label="1"),
        dict(ind=3, activity_label="Café", ctx_a="A waiter carries a tray.", ctx_b="éCLAIRS Are on it,",
             ctx="A waiter carries a tray. éCLAIRS Are on it,",
             endings=["which he serves – slowly – to the guests.", "so.", "and ça va.", "then it rains  cats."],
             label="2")]),
    "arc": ("arc/arc_easy.yaml", [
        dict(id="a", question="Which of these is a source of light?",
             choices=dict(text=["the sun", "a stone", "a river", "a cloud"], label=["A", "B", "C", "D"]), answerKey="A"),
        dict(id="b", question="What pulls a stone down?",
             choices=dict(text=["light", "gravity", "the moon"], label=["1", "2", "3"]), answerKey="2"),
        dict(id="c", question="Where do fish live?",
             choices=dict(text=["in water", "in the air", "in trees", "under the stars", "in a café"],
                          label=["A", "B", "C", "D", "E"]), answerKey="C")]),
    "mmlu": ("mmlu/default/mmlu_SUBJECT.yaml", [
        dict(question=" How many legs has a horse? ", subject="anatomy", choices=["two", "four", "six", "eight"], answer=1),
        dict(question="Which organ pumps blood?", subject="anatomy", choices=["lung", "liver", "heart", "skin"], answer=2),
        dict(question="What is a cell's power house?\nThink.", subject="high_school_biology",
             choices=["nucleus", "wall", "ribosome", "mitochondrion"], answer=3),
        dict(question="What do plants breathe in?", subject="high_school_biology",
             choices=["CO2", "iron", "salt", "gold"], answer=0)]),
    "piqa": ("piqa/piqa.yaml", [
        dict(goal="To open a jar,", sol1="turn its lid.", sol2="sing to its lid.", label=0),
        dict(goal="How to dry a shirt?", sol1="Put it under water.", sol2="Hang it in the sun.", label=1),
        dict(goal="boil an egg", sol1="Put it in boiling water – eight minutes.", sol2="Wait.", label=0)]),
    "winogrande": ("winogrande/default.yaml", [
        dict(sentence="The cup did not fit into the box because the _ was too big.", option1="cup", option2="box", answer="1"),
        dict(sentence="Ann thanked Eve, for _  had helped.", option1="Ann", option2="Eve", answer="2"),
        dict(sentence="The moon was higher than the sun, so _ _ was low.", option1="the moon", option2="the sun", answer="2")]),
    "boolq": ("super_glue/boolq/default.yaml", [
        dict(passage="The moon goes around the earth once each month.", question="does the moon go around the earth",
             idx=0, label=1),
        dict(passage="Tides follow the moon, \"mostly\".", question="do tides follow the sun", idx=1, label=0)]),
    "openbookqa": ("openbookqa/openbookqa.yaml", [
        dict(id="1", question_stem="The moon shines because", choices=dict(
            text=["it burns", "light of the sun falls on it", "it is full of cheese", "we look"],
            label=["A", "B", "C", "D"]), answerKey="B"),
        dict(id="2", question_stem="A plant in the dark will ", choices=dict(
            text=["grow pale", "sing", "fly", "turn to stone"], label=["A", "B", "C", "D"]), answerKey=" A")]),
    "sciq": ("sciq/sciq.yaml", [
        dict(question="What moves the tides?", distractor1="wind", distractor2="fish", distractor3="ships",
             correct_answer="the moon", support=" The moon pulls at the sea."),
        dict(question="What is ice?", distractor1="dry sand", distractor2="glass", distractor3="hot air",
             correct_answer="frozen water", support="")]),
    "commonsense_qa": ("commonsense_qa/default.yaml", [
        dict(id="1", question="Where would you keep milk? ", question_concept="milk", choices=dict(
            label=["A", "B", "C", "D", "E"], text=["oven", "fridge", "shoe", "roof", "lake"]), answerKey="B"),
        dict(id="2", question="What is a ladder for?", question_concept="ladder", choices=dict(
            label=["A", "B", "C", "D", "E"], text=["climbing", "eating", "sleep", "music", "rain"]), answerKey="A")]),
    "copa": ("super_glue/copa/default.yaml", [
        dict(premise="The ground was wet.", choice1="It had rained.", choice2="The sun shone.", question="cause",
             idx=0, label=0),
        dict(premise="The girl dropped the glass. ", choice1="She sang.", choice2="Élan left it in pieces.",
             question="effect", idx=1, label=1)]),
    "lambada": ("lambada/lambada_openai.yaml", [
        dict(text="the moon went up and the tide went in, and then the tide went out and down went the moon"),
        dict(text="\"give me the oar,\" said the old man, and the boy gave him the oar"),
        dict(text="a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a")]),
}

SHARES = {"acc": "right", "acc_stderr": "right_stderr", "acc_norm": "right_per_character",
          "acc_norm_stderr": "right_per_character_stderr", "perplexity": "perplexity"}


def write_lines(path, rows):
    with open(path, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


def make_task(path, rows, folder):
    """The harness' task with these rows in place of its data, and its examples from them, too."""
    config = load_yaml(path)
    data = os.path.join(folder, "rows.jsonl")
    write_lines(data, rows)
    config.update(dataset_path="json", dataset_name=None, training_split=None, validation_split=None,
                  test_split="test", fewshot_split="test",
                  dataset_kwargs=dict(data_files=dict(test=data), cache_dir=os.path.join(folder, "cache")))
    for key in ("tag", "task_alias", "should_decontaminate", "doc_to_decontamination_query"):
        config.pop(key, None)
    if "fewshot_config" in config:
        config["fewshot_config"] = dict(config["fewshot_config"], split="test")
    return ConfigurableTask(config=config)


def ask(lm, name, path, rows, shots):
    with tempfile.TemporaryDirectory() as folder:
        task = make_task(path, rows, folder)
        task.set_config("num_fewshot", shots)
        done = lm_eval.evaluate(lm, {name: task}, bootstrap_iters=2, log_samples=True)
    samples = sorted(done["samples"][name], key=lambda sample: sample["doc_id"])
    return samples, next(iter(done["results"].values()))


def tell(name, file, line, row, sample):
    """As --predictions has it."""
    pairs = [sample["arguments"][f"gen_args_{i}"] for i in range(len(sample["arguments"]))] \
        if isinstance(sample["arguments"], dict) else \
        [dict(arg_0=pair[0], arg_1=pair[1]) for pair in sample["arguments"]]
    told = dict(path=file, line=line, task=name)
    if "subject" in row:
        told["group"] = row["subject"]
    prompts, choices = [pair["arg_0"] for pair in pairs], [pair["arg_1"] for pair in pairs]
    several = len(set(prompts)) > 1
    told.update(prompts=prompts) if several else told.update(prompt=prompts[0])
    told["choices"] = [choice[0 if name == "lambada" else 1:] for choice in choices[:1 if several else None]]
    scores = [response[0] for response in sample["resps"]]
    scores = [score[0] if isinstance(score[0], (list, tuple)) else score for score in scores]
    if name != "lambada":
        target = {"winogrande": lambda: int(row["answer"]) - 1, "copa": lambda: row["label"]}.get(name)
        gold = target() if target else sample["target"]
        if isinstance(gold, str) and not gold.isdigit():
            gold = told["choices"].index(gold)
        told["answer"] = int(gold)
    told["log_probabilities"] = [float(score[0]) for score in scores]
    if name == "lambada":
        told["is_greedy"] = bool(scores[0][1])
    return told


def make_model():
    """Random, but a word is likely to follow itself: its embedding is most of what the last layer sees."""
    torch.manual_seed(3)
    config = GPT2Config(vocab_size=426, n_positions=SEQ, n_embd=16, n_layer=1, n_head=2, initializer_range=0.5,
                        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_((parameter * (0.3 if "c_proj.weight" in name else 1)).bfloat16())
    return model


def main():
    os.makedirs(OUT, exist_ok=True)
    model = make_model()
    model.bfloat16().save_pretrained(os.path.join(OUT, "model"))
    os.remove(os.path.join(OUT, "model/generation_config.json"))
    os.chmod(os.path.join(OUT, "model/model.safetensors"), 0o644)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=TOKENIZER, eos_token="<|endoftext|>")
    lm = HFLM(pretrained=model.double(), tokenizer=tokenizer, max_length=SEQ, batch_size=1, device="cpu",
              dtype=torch.float64)
    shares = []
    for name, (path, rows) in ROWS.items():
        write_lines(os.path.join(OUT, name + ".jsonl"), rows)
        for shots in (0, 1):
            used = rows if shots == 0 or name == "mmlu" else rows[:2]
            file = f"{name}.jsonl" if used is rows else f"{name}.two.jsonl"
            told, found = [], []
            for subject in dict.fromkeys(row.get("subject") for row in used):
                some = [(i, row) for i, row in enumerate(used) if row.get("subject") == subject]
                task = os.path.join(TASKS, path.replace("SUBJECT", str(subject)))
                samples, result = ask(lm, name, task, [row for _, row in some], shots)
                told += [tell(name, file, i + 1, row, sample) for (i, row), sample in zip(some, samples)]
                found.append((subject, len(some), result))
            told.sort(key=lambda line: line["line"])
            write_lines(os.path.join(OUT, f"{name}.expect{shots}"), told)
            for subject, n, result in found:
                shares.append(f"{name} {shots} {subject or '-'} questions {n}\n")
                for key, ours in SHARES.items():
                    if f"{key},none" in result:
                        value = float(result[f"{key},none"])
                        shares.append(f"{name} {shots} {subject or '-'} {ours} {value:.12g}\n")
        if name in ("arc", "mmlu"):
            table = pyarrow.Table.from_pylist(rows)
            pyarrow.parquet.write_table(table, os.path.join(OUT, name + ".parquet"))
    with open(os.path.join(OUT, "shares.txt"), "w", encoding="utf-8") as out:
        out.writelines(shares)


if __name__ == "__main__":
    main()
