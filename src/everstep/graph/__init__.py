"""Graphs: nodes that are steps, joined by the names of what they give and take."""
