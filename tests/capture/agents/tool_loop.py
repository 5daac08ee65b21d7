"""A research agent as people write them: it asks the model, does what the model wants, and writes a report.

The report goes to the file that `REPORT` names, `report.md` in the working directory unless told.
"""

import json
import os
import random
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

from openai import OpenAI

PLACE = os.environ["MODEL_URL"] + "/v1"
LIMIT = 10  # turns


def search(query: str) -> str:
    """What the web says, were there one."""
    return json.dumps({"query": query, "hits": random.sample(range(1000), 3)})


def note(text: str) -> str:
    """Keep a note, with the time."""
    NOTES.append(f"{datetime.now().isoformat()} {text}")
    return f"{len(NOTES)} notes"


NOTES: list[str] = []
TOOLS: dict[str, tuple[Callable[..., str], str]] = {"search": (search, "query"), "note": (note, "text")}


def described(name: str) -> Any:
    """A tool, as the model is told of it."""
    function, argument = TOOLS[name]
    schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": function.__doc__, "parameters": schema}}


def main() -> None:
    """The loop: until the model has no more wishes."""
    client = OpenAI(base_url=PLACE, api_key="sk-test")
    prompt = f"Find out about tides. Today is {date.today()}. [rounds 4] [calls 2]"
    messages: list[Any] = [{"role": "system", "content": "You are careful."}, {"role": "user", "content": prompt}]
    spent = 0
    for turn in range(LIMIT):
        got = client.chat.completions.create(
            model="gpt-test", messages=messages, tools=[described(name) for name in TOOLS]
        )
        spent += got.usage.total_tokens if got.usage else 0
        said = got.choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            break
        for call in said.tool_calls:
            assert call.type == "function"
            result = TOOLS[call.function.name][0](**json.loads(call.function.arguments))
            print("turn", turn, call.function.name, call.function.arguments, "->", result, flush=True)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    print("answer", said.content, "for", spent, "tokens", flush=True)
    report = Path(os.environ.get("REPORT", "report.md"))
    report.write_text("\n".join([f"# {said.content}", *NOTES, ""]), "utf-8")
    print("wrote", report.name, len(NOTES), "notes", flush=True)


if __name__ == "__main__":
    main()
