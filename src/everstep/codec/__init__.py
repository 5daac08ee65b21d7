"""Values to bytes and back: faithful types, deltas, keyframes, and the hash chain over them."""
