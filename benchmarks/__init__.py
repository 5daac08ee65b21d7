"""Measurements of Everstep, its peers and the raw floor, side by side in one run."""
