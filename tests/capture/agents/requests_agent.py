"""An agent on requests: whole answers, streams, a session with cookies, redirects, compression, retries."""

import hashlib
import os
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

URL = os.environ["MODEL_URL"]
KEY = os.environ.get("RUN_KEY", "k")


def say(*words: object) -> None:
    """One line of the transcript."""
    print(*words, flush=True)


def plain() -> None:
    """Calls that are alike, without a session, and what an error looks like."""
    for number in range(2):
        say("get", number, requests.get(f"{URL}/plain/a", timeout=10).json())
        say("post", number, requests.post(f"{URL}/plain/a", json={"x": 1}, timeout=10).json())
    got = requests.get(f"{URL}/nothing", timeout=10)
    say("missing", got.status_code, got.reason, got.json()["counter"])
    try:
        requests.get(f"{URL}/slow?s=5", timeout=0.1)
    except requests.Timeout as error:
        say("too slow", type(error).__name__)
    try:
        requests.get(f"{URL}/drop", timeout=10)
    except requests.RequestException as error:
        say("broken off", type(error).__name__)


def streams() -> None:
    """Answers that are read while they come: by lines, by pieces, and not to their end."""
    with requests.get(f"{URL}/lines?n=5", stream=True, timeout=10) as got:
        for line in got.iter_lines(decode_unicode=True):
            say("line", line)
    asked: Any = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Tell me."}]}
    with requests.post(f"{URL}/v1/chat/completions", json=asked, stream=True, timeout=10) as got:
        for line in got.iter_lines():
            if line:
                say("event", len(line), line[-30:])
    with requests.get(f"{URL}/bytes?n=5000", stream=True, timeout=10) as got:
        sizes, running = [], hashlib.sha256()
        for piece in got.iter_content(1024):
            sizes.append(len(piece))
            running.update(piece)
        say("pieces", sum(sizes), max(sizes), running.hexdigest()[:16])
    with requests.get(f"{URL}/lines?n=60", stream=True, timeout=10) as got:
        say("early", next(got.iter_lines()))


def session() -> None:
    """A session: cookies that come back, redirects, compression, and a retry by the adapter."""
    with requests.Session() as kept:
        kept.headers["X-Marker"] = "session"
        kept.mount("http://", HTTPAdapter(max_retries=Retry(total=2, status_forcelist=[500], backoff_factor=0.01)))
        for number in range(3):
            say("cookie", number, kept.get(f"{URL}/cookie", timeout=10).json(), kept.cookies.keys())
        got = kept.get(f"{URL}/redirect?hops=2", timeout=10)
        say("redirect", [each.status_code for each in got.history], got.json())
        squeezed = kept.get(f"{URL}/gzip", timeout=10)
        say("gzip", squeezed.headers["Content-Encoding"], squeezed.json()["counter"], len(squeezed.content))
        say("retried", kept.get(f"{URL}/flaky?key={KEY}-requests", timeout=10).json())
        say("put", kept.put(f"{URL}/echo", data=iter([b"in ", b"pieces"]), timeout=10).json()["body"])
        say("file", kept.post(f"{URL}/plain/up", files={"f": ("a.txt", b"text")}, timeout=10).json()["counter"])


if __name__ == "__main__":
    plain()
    streams()
    session()
    say("done")
