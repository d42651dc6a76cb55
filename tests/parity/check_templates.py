"""Chat templates as transformers renders them: writes what the test suite compares with, or compares a built Weft by hand.

    python3 -m venv env && env/bin/pip install transformers==5.17.0 jinja2==3.1.6
    env/bin/python tests/parity/check_templates.py --write                               # renderings.json, lines.json in tests/parity/text
    env/bin/python tests/parity/check_templates.py --program build/tests/weft_render [--templates FOLDER] [--cases 2000]
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template

HERE = Path(__file__).resolve().parent / "text"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather <now> & \"later\" in a place, 天气",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}, "days": {"type": "integer", "default": 1}},
                "required": ["place"],
                "scale": [1.0, 2.5e-07, 1e22, -0.0, True, None],
            },
        },
    },
    {"type": "function", "function": {"name": "now", "parameters": {}}},
]
VARIABLES = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eos|>"}


class Conversations:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def text(self):
        words = ["hello", "天气", "naïve", "<b>", "\n", "\n\n", "  ", "{{ x }}", "it's", '"q"', "👍", "<think>", "</think>", "<result>", "</result>", "1.5", "&"]
        return "".join(self.random.choice(words) for _ in range(self.random.choice([0, 1, 2, 5, 9])))

    def parts(self):
        kinds = [{"type": "image"}, {"type": "image", "image": "a.png"}, {"type": "video"}, {"type": "audio"}]
        return [
            self.random.choice(kinds) if self.random.random() < 0.5 else {"type": "text", "text": self.text()}
            for _ in range(self.random.choice([1, 2, 3, 5]))
        ]

    def message(self, role, with_parts):
        r = self.random
        message = {"role": role, "content": self.parts() if with_parts and r.random() < 0.6 else self.text()}
        if role == "assistant" and r.random() < 0.3 and not with_parts:
            message["tool_calls"] = [
                {"type": "function", "function": {"name": "weather", "arguments": {"place": self.text(), "n": r.choice([1, 2.0, None])}}}
                for _ in range(r.choice([1, 1, 2]))
            ]
        if role == "assistant" and r.random() < 0.3:
            message["reasoning_content"] = r.choice([None, self.text()])
        return message

    def next(self):
        r = self.random
        with_parts = r.random() < 0.5
        roles = ["system"] * (r.random() < 0.4)
        for _ in range(r.choice([1, 1, 2, 3])):
            roles += ["user", "assistant"] + ["tool"] * r.choice([0, 0, 1, 2])
        if r.random() < 0.2:
            roles.insert(r.randrange(len(roles)), r.choice(["skip", "stop", "system"]))
        messages = [self.message(role, with_parts) for role in roles]
        if r.random() < 0.3:
            messages = messages[:-1] or messages
        return {
            "messages": messages,
            "tools": TOOLS[: r.choice([1, 2])] if r.random() < 0.3 else None,
            "add_generation_prompt": r.random() < 0.5,
            "variables": VARIABLES
            | ({"enable_thinking": False} if r.random() < 0.2 else {})
            | ({"add_vision_id": True} if r.random() < 0.3 else {})
            | {"date_string": "1 Jan 2025"},
        }


def expected(template, case):
    """The text and what stood in generation blocks; or an error."""
    try:
        texts, indices = render_jinja_template(
            [case["messages"]],
            tools=case["tools"],
            chat_template=template,
            add_generation_prompt=case["add_generation_prompt"],
            return_assistant_tokens_mask="generation" in template,
            **case["variables"],
        )
    except Exception as error:  # a template may raise anything
        return {"error": str(error)}
    text = texts[0]
    return {"text": text, "generations": [text[a:b] for a, b in indices[0]] if indices else []}


def write_lines():
    """Each line of lines.txt is a template; "! " before it says that Weft refuses it by name, though Jinja renders it."""
    conversation = {
        "messages": [{"role": "user", "content": "a b  c"}, {"role": "assistant", "content": "x"}],
        "tools": None,
        "add_generation_prompt": False,
        "variables": {"bos_token": "<s>"},
    }
    lines = []
    for line in (HERE / "lines.txt").read_text().split("\n"):
        if not line:
            continue
        template = line.removeprefix("! ")
        rendered = expected(template, conversation)
        if line != template:
            assert "text" in rendered, f"Jinja refuses {template}, too: {rendered}"
        refused = line != template or "error" in rendered
        lines.append({"template": template} | ({"refused": True} if refused else {"text": rendered["text"]}))
    (HERE / "lines.json").write_text(json.dumps({"case": conversation, "lines": lines}, indent=1, ensure_ascii=True) + "\n")


def agrees(answer, wanted):
    return ("error" in answer) == ("error" in wanted) and answer.get("text") == wanted.get("text") and (
        answer.get("generations") == wanted.get("generations")
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--program")
    parser.add_argument("--templates", default=str(HERE / "templates"))
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    templates = {p.stem: p.read_text() for p in sorted(Path(args.templates).glob("*.jinja"))}
    conversations = Conversations(args.seed)
    if args.write:
        cases = [conversations.next() for _ in range(14)]
        renderings = {name: [expected(text, case) for case in cases] for name, text in templates.items()}
        (HERE / "renderings.json").write_text(json.dumps({"cases": cases, "renderings": renderings}, indent=1, ensure_ascii=False) + "\n")
        write_lines()
        return
    wrong = 0
    for name, text in templates.items():
        cases = [conversations.next() for _ in range(args.cases)]
        asked = "".join(json.dumps({"template": text} | case) + "\n" for case in cases)
        answers = subprocess.run([args.program], input=asked, capture_output=True, text=True, check=True).stdout.splitlines()
        errors = differ = 0
        for case, line in zip(cases, answers, strict=True):
            answer, wanted = json.loads(line), expected(text, case)
            errors += "error" in wanted
            if not agrees(answer, wanted):
                differ += 1
                if differ <= 2:
                    print(f"{name}: {json.dumps(case, ensure_ascii=False)[:1500]}\n  expected {wanted}\n  found    {answer}")
        print(f"{name}: {len(cases)} conversations, {errors} refused by both, {differ} differ")
        wrong += differ
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
