"""An agent that works for long: each prompt holds the answer before it, the time and an id of its own.

`STEPS` is the number of calls, 30 unless told; `PAUSE` the seconds between them, none unless told.
"""

import hashlib
import os
import time
import uuid

from openai import OpenAI

client = OpenAI(base_url=os.environ["MODEL_URL"] + "/v1", api_key="sk-test")


def main() -> None:
    """A line for every answer, with the digest of all until then."""
    running = hashlib.sha256()
    answer = "nothing yet"
    for step in range(int(os.environ.get("STEPS", "30"))):
        prompt = f"{step} {uuid.uuid4()} {time.time()} so far: {answer}"
        got = client.chat.completions.create(model="gpt-test", messages=[{"role": "user", "content": prompt}])
        answer = str(got.choices[0].message.content)
        running.update(f"{prompt}\n{answer}\n".encode())
        print("step", step, answer, running.hexdigest()[:16], flush=True)
        time.sleep(float(os.environ.get("PAUSE", "0")))
    print("done", running.hexdigest(), flush=True)


if __name__ == "__main__":
    main()
