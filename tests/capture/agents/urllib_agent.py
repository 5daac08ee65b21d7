"""An agent on what Python brings along: urllib.request and http.client; and urllib3 without requests."""

import http.client
import http.cookiejar
import json
import os
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import urllib3

URL = os.environ["MODEL_URL"]
KEY = os.environ.get("RUN_KEY", "k")
HOST = urlsplit(URL).netloc


def say(*words: object) -> None:
    """One line of the transcript."""
    print(*words, flush=True)


def opened() -> None:
    """What urlopen gives: whole, by lines, after a redirect, with cookies, and as an error."""
    for number in range(2):
        with urllib.request.urlopen(f"{URL}/plain/a", timeout=10) as got:
            say("get", number, got.status, json.load(got))
    request = urllib.request.Request(f"{URL}/echo", data=b"body", headers={"X-Marker": "urllib"}, method="PUT")
    with urllib.request.urlopen(request, timeout=10) as got:
        said = json.load(got)
        say("put", said["method"], said["body"], said["counter"])
    with urllib.request.urlopen(f"{URL}/lines?n=3", timeout=10) as got:
        for line in got:
            say("line", line)
    with urllib.request.urlopen(f"{URL}/redirect?hops=2", timeout=10) as got:
        say("redirect", urlsplit(got.url).path, json.load(got))
    try:
        urllib.request.urlopen(f"{URL}/flaky?key={KEY}-urllib", timeout=10)
    except urllib.error.HTTPError as error:
        say("failed", error.code, json.load(error)["counter"])
    with urllib.request.urlopen(f"{URL}/flaky?key={KEY}-urllib", timeout=10) as got:
        say("then", json.load(got))
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    for number in range(2):
        with opener.open(f"{URL}/cookie", timeout=10) as got:
            say("cookie", number, json.load(got), [cookie.name for cookie in jar])


def connected() -> None:
    """One connection for many requests, an answer read in pieces, and one that breaks off."""
    connection = http.client.HTTPConnection(HOST, timeout=10)
    for number in range(3):
        connection.request("POST", "/plain/kept", body=b"{}", headers={"Content-Type": "application/json"})
        got = connection.getresponse()
        say("kept", number, got.status, got.getheader("X-Counter"), json.loads(got.read()))
    connection.request("GET", "/bytes?n=3000")
    got = connection.getresponse()
    sizes = []
    while piece := got.read(1000):
        sizes.append(len(piece))
    say("pieces", sizes)
    connection.request("GET", "/drop")
    try:
        connection.getresponse().read()
    except http.client.IncompleteRead as error:
        say("broken off", len(error.partial) > 0, error.expected is not None)
    connection.close()


def pooled() -> None:
    """A pool of urllib3: whole, as a stream, and closed early."""
    pool = urllib3.PoolManager(retries=False, timeout=10)
    for number in range(2):
        say("pool", number, pool.request("GET", f"{URL}/plain/a").json())
    got = pool.request("GET", f"{URL}/lines?n=4", preload_content=False)
    for line in got:
        say("pool line", line)
    got.release_conn()
    got = pool.request("GET", f"{URL}/lines?n=60", preload_content=False)
    say("pool early", next(iter(got)))
    got.close()
    pool.clear()


if __name__ == "__main__":
    opened()
    connected()
    pooled()
    say("done")
