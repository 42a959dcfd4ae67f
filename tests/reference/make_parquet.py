#!/usr/bin/env python3
"""Makes tests/data/parquet: small Parquet files by pyarrow (20 or newer), in the codecs, encodings and
versions that are read, and one in a codec that is not. Each has the texts of texts.jsonl, of which some are null
or empty, or the conversations of messages.jsonl, the pairs of pairs.jsonl, the objects of choices.jsonl.

    tests/reference/make_parquet.py tests/data/parquet
"""
import json
import os
import random
import sys

import pyarrow as pa
import pyarrow.parquet as pq

WORDS = ("the moon is a body that goes around a planet once each month ébène λόγος "
         "太陽 tide orbit perilune apolune \n \t \" \\ 🌙").split(" ")


def text(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(1)

    def save(name, rows):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            for row in rows:
                out.write(json.dumps(row, ensure_ascii=False) + "\n")

    texts = [text(rng, rng.randint(1, 12)) for _ in range(60)]
    texts += [rng.choice(texts[:6]) for _ in range(60)]  # what a dictionary is for
    texts[7] = texts[70] = ""
    texts[3] = texts[50] = texts[51] = None
    save("texts.jsonl", [{"text": t or ""} for t in texts])
    table = pa.table({"id": list(range(len(texts))), "text": pa.array(texts, pa.string()),
                      "url": [f"u{i}" for i in range(len(texts))]})
    required = pa.table({"text": pa.array([t or "" for t in texts], pa.string())},
                        schema=pa.schema([pa.field("text", pa.string(), nullable=False)]))

    def write(name, table, **how):
        pq.write_table(table, os.path.join(folder, name), **how)

    for codec in ("none", "snappy", "gzip", "zstd", "brotli"):
        write(f"{codec}.parquet", table, compression=codec, row_group_size=50)
    write("pages2.parquet", table, compression="zstd", data_page_version="2.0", data_page_size=300,
          write_batch_size=10)
    write("plain.parquet", table, compression="snappy", use_dictionary=False, data_page_size=300,
          write_batch_size=10)
    write("fallback.parquet", table, dictionary_pagesize_limit=400, write_batch_size=10)
    for encoding in ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"):
        write(f"{encoding.lower()}.parquet", table, use_dictionary=False,
              column_encoding={"text": encoding, "url": encoding, "id": "PLAIN"},
              data_page_version="2.0")
    write("required.parquet", required, compression="snappy")

    chats = []
    for i in range(20):
        messages = [{"role": "user", "content": text(rng, 5)}, {"role": "assistant", "content": text(rng, 4)}]
        if i % 3 == 0:
            messages += [{"role": "user", "content": text(rng, 2)}, {"role": "assistant", "content": text(rng, 3)}]
        chats.append(messages)
    save("messages.jsonl", [{"messages": m} for m in chats])
    kind = pa.list_(pa.struct([("content", pa.string()), ("role", pa.string())]))
    write("messages.parquet", pa.table({"source": ["x"] * 20, "messages": pa.array(chats, kind)}),
          compression="zstd", row_group_size=7)

    tools = pa.struct([("content", pa.string()), ("role", pa.string()),
                       ("tool_calls", pa.list_(pa.struct([("name", pa.string()), ("id", pa.int32())])))])
    calls = [[dict(m, tool_calls=[] if i else None) for m in chat] for i, chat in enumerate(chats)]
    write("no_tools.parquet", pa.table({"messages": pa.array(calls, pa.list_(tools))}))
    calls[11][1]["tool_calls"] = [{"name": None, "id": None}, {"name": "f", "id": 1}]
    write("tools.parquet", pa.table({"messages": pa.array(calls, pa.list_(tools))}))

    pairs = [{"prompt": text(rng, 4), "completion": text(rng, 3)} for _ in range(20)]
    save("pairs.jsonl", pairs)
    write("pairs.parquet", pa.table({k: [p[k] for p in pairs] for k in ("prompt", "completion")}))

    weighed = [[dict(m, weight=None if k % 2 == 0 else i % 2) for k, m in enumerate(chat)]
               for i, chat in enumerate(chats)]
    save("weights.jsonl", [{"messages": [{k: v for k, v in m.items() if v is not None} for m in c]}
                           for c in weighed])
    kind = pa.list_(pa.struct([("content", pa.string()), ("role", pa.string()), ("weight", pa.int64())]))
    write("weights.parquet", pa.table({"messages": pa.array(weighed, kind)}), compression="zstd")

    labelled = [{"text": text(rng, rng.randint(1, 9)), "label": rng.randrange(3)} for _ in range(50)]
    save("labels.jsonl", labelled)
    columns = {k: [row[k] for row in labelled] for k in ("text", "label")}
    for kind in (pa.int64(), pa.int32(), pa.float64(), pa.float32()):
        table = pa.table({"text": columns["text"], "label": pa.array(columns["label"], kind)})
        write(f"labels_{kind}.parquet", table, use_dictionary=kind in (pa.int64(), pa.float32()))
    write("labels_delta.parquet", pa.table(columns), use_dictionary=False,
          column_encoding={"label": "DELTA_BINARY_PACKED", "text": "PLAIN"})

    answers = [{"prompt": text(rng, 4), "completion": text(rng, 3), "label": i % 7 in (0, 1, 4)} for i in range(100)]
    save("answers.jsonl", answers)
    table = pa.table({k: [a[k] for a in answers] for k in ("prompt", "completion", "label")})
    write("answers.parquet", table, compression="snappy", row_group_size=37)
    write("answers_runs.parquet", table, data_page_version="2.0")

    # Objects: choices and prompts. The last columns are left out.
    rng = random.Random(2)
    asked = [{"prompt": text(rng, 3), "choices": [text(rng, 1) or "x" for _ in range(i % 4)], "answer": i % 3,
              "share": i / 8, "good": i % 2 == 0} for i in range(24)]
    asked[5]["choices"], asked[6]["answer"], asked[7]["prompt"] = ["a", None, ""], None, None
    save("choices.jsonl", [{k: v for k, v in a.items() if v not in (None, [])} | {"deep": {"a": "b"}} for a in asked])
    columns = {k: [a[k] for a in asked] for k in asked[0]}
    columns |= {"deep": [{"a": "b"}] * 24, "lists": [[["a"]]] * 24, "numbers": [[1, 2]] * 24}
    write("choices.parquet", pa.table(columns), compression="zstd", row_group_size=13)

    # Records of lists, as ARC's, and of texts: what else is in such a record is left out.
    rng = random.Random(3)
    said = [{"question": text(rng, 3), "choices": {"text": [text(rng, 1) for _ in range(1 + i % 4)],
                                                   "label": list("ABCD")[:1 + i % 4]}, "answerKey": "A"} for i in range(24)]
    said[3]["choices"]["text"][1], said[4]["choices"]["label"], said[9]["choices"] = None, [], None
    save("records.jsonl", [{k: v if k != "choices" else {a: b for a, b in v.items() if b} | {"name": "x"} for k, v in row.items()
                            if v is not None} for row in said])
    rows = [row["choices"] and dict(row["choices"], numbers=[1], name="x", records=[{"text": "y"}], lists=[["z"]],
                                    inner={"text": ["w"]}) for row in said]
    columns = {k: [row[k] for row in said] for k in ("question", "answerKey")} | {"choices": rows}
    write("records.parquet", pa.table(columns), compression="zstd", row_group_size=13)


main()
