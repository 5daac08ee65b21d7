"""A program within a cassette of vcrpy: `under_vcr.py CASSETTE MATCHING PROGRAM WORDS...`.

As vcrpy's own page says it is used: `use_cassette` around the code, its settings untouched. If MATCHING is `body`, and
not `default`, the body of a request is matched besides what is matched by default.
"""

import runpy
import sys

import vcr  # type: ignore[import-not-found]  # lives in the environment of the benchmarks only

DEFAULT = ("method", "scheme", "host", "port", "path", "query")

if __name__ == "__main__":
    _, cassette, matching, *words = sys.argv
    settings = {"match_on": (*DEFAULT, "body")} if matching == "body" else {}
    sys.argv = words
    with vcr.use_cassette(cassette, **settings):
        runpy.run_path(words[0], run_name="__main__")
