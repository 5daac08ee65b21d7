"""An agent that fails after three calls, unless `FIXED` is set: then it makes two more and ends well."""

import os

from openai import OpenAI

client = OpenAI(base_url=os.environ["MODEL_URL"] + "/v1", api_key="sk-test")


def ask(number: int) -> str:
    """A question and its answer."""
    messages = [{"role": "user", "content": f"Question {number}."}]
    got = client.chat.completions.create(model="gpt-test", messages=messages)
    return str(got.choices[0].message.content)


if __name__ == "__main__":
    for at in range(5):
        if at == 3 and "FIXED" not in os.environ:
            raise ValueError("this agent cannot go on")
        print("answer", at, ask(at), flush=True)
    print("done", flush=True)
