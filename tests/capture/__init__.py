"""The test ground of capture: a server that no two requests get one answer from, and agent programs that ask it."""
