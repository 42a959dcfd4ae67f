#!/usr/bin/env python3
"""Renders templates as transformers does: tests/data/jinja.jsonl, for test_jinja and test_chat_jinja.

    make_jinja.py > tests/data/jinja.jsonl

Templates are the lines of tests/data/jinja_snippets.txt, those below, which have several lines, and
the files in tests/data/chat_templates with the conversations below. "text" is null where Jinja2
makes an error of it. Needs transformers (5.24).
"""
import copy
import json
import os

from transformers.utils import chat_template_utils as utils

DATA = os.path.join(os.path.dirname(__file__), "..", "data")
VARIABLES = {"d": {"k": "v", "n": 1, "items2": [1]}, "l": [1, 2, "x"],
             "messages": [{"role": "user", "content": "hi"}]}
LINES = [
    "  {% if true %}\n  z\n  {% endif %}\n end\n",
    "a\n  {%- set q = 1 %}\nb\n    {{ q }}\nc\n",
    "{%- for m in [1,2] -%}\n  {{ m }}\n{%- endfor -%}\n",
    "x\n  {# c #}\ny\n\n",
    "x\n  {# c #} z\ny",
    "a\r\nb\rc\n",
    "{% if true %}\n\nx{% endif %}\n",
    "  {{ 1 }}\n  {%+ if true %}x{% endif %}\n",
    "a {%- raw %} {{ x }} {% endraw -%}  b",
    "a\n  {% raw %}\nx\n  {% endraw %}\nb",
    "{{ 'a' -}}\n  {% if 1 %}x{% endif %}",
    "{% set x -%}\n a\n{%- endset %}[{{ x }}]",
    "\n{% if 1 %}{% endif %}\n",
    "{% for i in [1] %}\n  {% if 1 %}\n a\n  {% endif %}\n{% endfor %}\nb",
    "{#- a -#}\n\n{% set x = 1 -%}\n\n {{- x }}",
    "{{ 1\n + 2 }}\n",
    "{{ 'a\nb' }}",
    "\t{% if 1 %}\tx\t{% endif %}\t\n",
    "a{# x",
    "{% raw %}x",
    "{{ 'x",
    "{{ x",
    "  {%- if 1 %}  \n a{% endif %}",
    "\u00e9 {%- if 1 %}\u00fc {% endif %}\u00a0{%- if 1 %}x{% endif %}",
    "{#a#}\n {% if 1 %}x{% endif %}",
    "{{1-}}\n  {#a#}x",
    "{%if 1%}a{%else%}b{%endif%}",
    "{%-if 1-%}a{%-endif-%}\n\n",
]

TOOL = {"type": "function", "function": {
    "name": "tide", "description": " When the water is <high> & \"low\". ",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string"}, "days": {"type": "integer", "enum": [1, 2]}}}}}
NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}


def call(arguments, name="tide"):
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def said(role, content, **more):
    return {"role": role, "content": content, **more}


CHATS = [
    {"messages": [said("user", "What is perilune?"), said("assistant", "A point.")]},
    {"messages": [said("system", "Be brief."), said("user", " a\n"), said("assistant", "b"), said("user", "ü?"),
                  said("assistant", " d ")]},
    {"messages": [said("user", "a"), said("assistant", "<think>\nhm\n</think>\n\nb"), said("user", "c")]},
    {"messages": [said("user", "a"), said("assistant", "b", reasoning_content="one"), said("user", "c"),
                  said("assistant", "d", reasoning="two")]},
    {"messages": [said("system", "S"), said("user", "tide?"),
                  said("assistant", None, tool_calls=[call({"place": "Köln", "days": 2, "x": 1.5, "n": None}),
                                                      call({}, "now")]),
                  said("tool", "[1, 2]"), said("tool", "noon"), said("assistant", "At one.")],
     "tools": [TOOL, NOW]},
    {"messages": [said("user", "tide?"), said("assistant", "Let me see.", tool_calls=[call('{"place": "Bonn"}')]),
                  said("tool", "low")], "tools": [TOOL]},
    {"messages": [said("user", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]),
                  said("assistant", "three")]},
    {"messages": [said("user", "a"), said("assistant", "b")], "enable_thinking": False},
    {"messages": [said("assistant", "I begin."), said("user", "a")]},
    {"messages": [said("user", "a"), said("judge", "b")]},
]


def render(template, variables):
    try:
        return utils._compile_jinja_template(template).render(**copy.deepcopy(variables))
    except Exception:  # whatever it is, it must be one here, too
        return None


def put(line):
    print(json.dumps(line, ensure_ascii=False))


def put_chat(name, chat, prompt):
    """As apply_chat_template prepares a conversation."""
    with open(os.path.join(DATA, "chat_templates", name), encoding="utf-8") as file:
        template = file.read()
    rest = {key: value for key, value in chat.items() if key != "messages"}
    messages = utils._alias_reasoning_fields(utils._normalize_chat_messages(chat["messages"]))
    variables = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>", **rest}
    text = render(template, {**variables, "messages": messages, "add_generation_prompt": prompt})
    put({"file": name, "chat": chat, "prompt": prompt, "text": text})


with open(os.path.join(DATA, "jinja_snippets.txt"), encoding="utf-8") as snippets:
    for template in snippets.read().split("\n")[:-1] + LINES:
        put({"template": template, "variables": VARIABLES, "text": render(template, VARIABLES)})
for name in sorted(os.listdir(os.path.join(DATA, "chat_templates"))):
    for chat in CHATS:
        for prompt in (False, True):
            put_chat(name, chat, prompt)
