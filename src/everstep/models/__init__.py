"""Models as leaves: what is asked and what is answered is a step, with what it cost."""
