"""The trail: an opened store, what is recorded to it, and what can be asked of it."""
