#!/usr/bin/env python3
"""Steps of GRPO by TRL and transformers on the CPU, for RESULTS.md ("Learning by rewards").

    trl_grpo.py --threads 2 --steps 4 TOKENIZER.json PROMPTS.jsonl

A Llama of 6 layers (model 512, 8 heads, ffn 1376, vocabulary 8192) with weights at random writes 8
answers of 64 tokens to each of 8 prompts a step and learns from them. Prints seconds a step, the
first one left out.
"""
import argparse
import json
import os
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from datasets import Dataset
from transformers import (LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback)
from trl import GRPOConfig, GRPOTrainer

N_PROMPTS, N_ANSWERS, ANSWER_TOKENS = 8, 8, 64


class Clock(TrainerCallback):
    def __init__(self):
        self.ends = []

    def on_step_end(self, args, state, control, **kwargs):
        self.ends.append(time.time())


def make_model(tokenizer):
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=8192, hidden_size=512, intermediate_size=1376, num_hidden_layers=6,
        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=256,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id))
    model.generation_config.eos_token_id = None
    return model


def count_e(completions, **kwargs):
    return [float(text.count("e") % 7) for text in completions]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("tokenizer")
    parser.add_argument("prompts")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    end = "<|endoftext|>"
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=args.tokenizer, eos_token=end, pad_token=end)
    with open(args.prompts) as file:
        prompts = Dataset.from_list([json.loads(line) for line in file])
    clock = Clock()
    config = GRPOConfig(
        output_dir="trl_grpo.out", use_cpu=True, per_device_train_batch_size=N_PROMPTS * N_ANSWERS,
        gradient_accumulation_steps=1, num_generations=N_ANSWERS,
        max_completion_length=ANSWER_TOKENS, max_steps=args.steps, learning_rate=1e-5, beta=0.0,
        report_to=[], save_strategy="no", bf16=False, gradient_checkpointing=False,
        generation_kwargs={"min_new_tokens": ANSWER_TOKENS, "eos_token_id": None})
    GRPOTrainer(model=make_model(tokenizer), reward_funcs=count_e, args=config,
                train_dataset=prompts, processing_class=tokenizer, callbacks=[clock]).train()
    print("s/step", " ".join(f"{b - a:.2f}" for a, b in zip(clock.ends, clock.ends[1:])))


if __name__ == "__main__":
    main()
