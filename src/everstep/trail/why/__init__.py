"""Why a run failed: read from its record alone."""
