#!/usr/bin/env python3
"""The yardstick: llama.cpp reads a prompt and writes texts on CPUs, in turns with bench_generate.

Prints, for each turn and program, tokens/s read and written, and the processor time (of all
threads) of the prompt and of a step, which other work on the machine disturbs least; then medians
over turns, and ours over theirs. A step writes one token of each text.

    CMAKE_ARGS="-DGGML_NATIVE=ON" pip install llama-cpp-python --no-binary llama-cpp-python
    perilune train models/gpt.lua --set size=124m --set optimizer=sgd --micro-batch 1 \\
        --global-batch 1 --steps 1 --data README.md --save gpt.safetensors
    perilune export gpt.safetensors --format gguf --dtype bf16 -o gpt-bf16.gguf
    make build/bench/bench_generate
    generate_llama_cpp.py gpt-bf16.gguf 124m --precision bf16 --texts 1 8 --threads 1 2 --turns 3

bench_generate draws weights of the same sizes at random; what they are does not change times.
--theirs-alone measures a file of another type (q8_0) that ours cannot write with.
"""

import argparse
import ctypes
import re
import statistics
import subprocess
import sys
import time

PROMPT, CONTEXT, CHUNK, SAMPLES, STEPS = 512, 1024, 128, 9, 8
KEYS = ("prompt tokens/s", "written tokens/s", "prompt, processor ms", "step, processor ms")


def fill(batch, tokens, places, texts):
    """Positions of a batch. The last of each text asks for logits."""
    batch.n_tokens = len(tokens)
    of_one = len(set(texts)) < len(texts)
    for i, (token, place, text) in enumerate(zip(tokens, places, texts)):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, place, 1
        batch.seq_id[i][0] = text
        batch.logits[i] = not of_one or i + 1 == len(tokens)


def measure_theirs(path, texts, threads, extra_buffers):
    """In this process: prints KEYS' numbers."""
    import llama_cpp as lib
    silent = lib.llama_log_callback(lambda level, text, user: None)
    lib.llama_log_set(silent, ctypes.c_void_p(0))
    lib.llama_backend_init()
    settings = lib.llama_model_default_params()
    settings.use_extra_bufts = extra_buffers
    model = lib.llama_model_load_from_file(path.encode(), settings)
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_seq_max = CONTEXT * texts, texts
    params.n_batch = params.n_ubatch = max(CHUNK, texts)
    params.n_threads = params.n_threads_batch = threads
    context = lib.llama_init_from_model(model, params)
    assert context, "llama.cpp cannot run this file"
    memory, batch = lib.llama_get_memory(context), lib.llama_batch_init(params.n_batch, 0, 1)
    vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    tokens = [(i * 7919 + 13) % vocab for i in range(PROMPT + texts)]

    def run(*positions):
        fill(batch, *positions)
        assert lib.llama_decode(context, batch) == 0
        lib.llama_synchronize(context)

    for _ in range(2):
        lib.llama_memory_clear(memory, True)
        start, busy = time.perf_counter(), time.process_time()
        for at in range(0, PROMPT, CHUNK):
            run(tokens[at:at + CHUNK], range(at, at + CHUNK), [0] * CHUNK)
        reading, busy_reading = time.perf_counter() - start, time.process_time() - busy
    for text in range(1, texts):
        lib.llama_memory_seq_cp(memory, 0, text, -1, -1)
    walls, busies, place = [], [], PROMPT
    for _ in range(SAMPLES):
        start, busy = time.perf_counter(), time.process_time()
        for _ in range(STEPS):
            run(tokens[:texts], [place] * texts, list(range(texts)))
            place += 1
        walls.append((time.perf_counter() - start) / STEPS)
        busies.append((time.process_time() - busy) / STEPS)
    print(PROMPT / reading, texts / statistics.median(walls), 1e3 * busy_reading,
          1e3 * statistics.median(busies))


def theirs(args, texts, threads):
    command = [sys.executable, __file__, args.gguf, args.size, "--one", str(texts), str(threads)]
    if args.no_extra_buffers:
        command.append("--no-extra-buffers")
    return [float(x) for x in subprocess.check_output(command, text=True).split()]


def ours(args, texts, threads):
    command = [args.bench, "--row", args.precision, str(texts), str(threads), args.size]
    line = subprocess.check_output(command + ([args.layers] if args.layers else []), text=True)
    found = re.search(r"reads +([\d.]+) .*writes +([\d.]+) .*: ([\d.]+) ms, ([\d.]+) ms", line)
    return [float(x) for x in found.groups()]


def show(name, numbers):
    print(f"  {name:12}" + "".join(f"{x:12.2f}" for x in numbers), flush=True)


def compare(args, texts, threads):
    print(f"{args.gguf}: {texts} side by side, threads: {threads}")
    print(" " * 14 + "  ".join(KEYS))
    programs = {"llama.cpp": theirs} if args.theirs_alone else {"perilune": ours,
                                                                "llama.cpp": theirs}
    found = {name: [] for name in programs}
    for _ in range(args.turns):
        for name, measure in programs.items():
            found[name].append(measure(args, texts, threads))
            show(name, found[name][-1])
    middle = {name: [statistics.median(x) for x in zip(*rows)] for name, rows in found.items()}
    for name, numbers in middle.items():
        show("median " + name[:5], numbers)
    if not args.theirs_alone:
        show("ours/theirs", [a / b for a, b in zip(middle["perilune"], middle["llama.cpp"])])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", help="their weights")
    parser.add_argument("size", help="ours: 124m (GPT-2), 1b (Llama 3.2)")
    parser.add_argument("--layers", help="instead of the size's")
    parser.add_argument("--precision", choices=["f32", "bf16"], default="bf16", help="of ours")
    parser.add_argument("--texts", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--bench", default="build/bench/bench_generate")
    parser.add_argument("--theirs-alone", action="store_true")
    parser.add_argument("--no-extra-buffers", action="store_true",
                        help="theirs without AMX and weights in another order")
    parser.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        measure_theirs(args.gguf, *args.one, not args.no_extra_buffers)
        return
    for texts in args.texts:
        for threads in args.threads:
            compare(args, texts, threads)


if __name__ == "__main__":
    main()
