#!/usr/bin/env python3
"""Renders conversations with published chat templates: tests/data/chats.jsonl, for test_chat.

    make_chats.py NAME=tokenizer_config.json ... > tests/data/chats.jsonl

NAME is Perilune's name of the template. Jinja2 is set up as transformers' apply_chat_template does.
"""
import json
import sys

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

HI, BYE = "What is perilune?", "The point closest to the moon.\nOf an orbit."
CASES = [
    [("user", HI), ("assistant", BYE)],
    [("system", "Be brief."), ("user", HI), ("assistant", BYE)],
    [("user", HI), ("assistant", BYE), ("user", "1 + 1?"), ("assistant", "2"), ("user", "Über 9000?")],
    [("system", "Zwei\nZeilen."), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")],
    [("user", "trimmed here "), ("assistant", " and there\n\n")],
    [("user", "  both sides \n"), ("assistant", "\tyes ")],
]


def token(value):
    return value["content"] if isinstance(value, dict) else value or ""


def fail(text):
    raise jinja2.exceptions.TemplateError(text)


for argument in sys.argv[1:]:
    name, path = argument.split("=", 1)
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = fail
    template = environment.from_string(config["chat_template"])
    for case in CASES:
        messages = [{"role": role, "content": content} for role, content in case]
        try:
            text = template.render(messages=messages, bos_token=token(config.get("bos_token")),
                                   eos_token=token(config.get("eos_token")),
                                   add_generation_prompt=False)
        except jinja2.exceptions.TemplateError:
            text = None  # the template refuses it
        print(json.dumps({"template": name, "messages": messages, "text": text},
                         ensure_ascii=False))
