"""`make bench-capture`: everstep, vcrpy and reeltime on the same unmodified programs, side by side."""
