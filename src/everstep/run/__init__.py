"""User code made durable: steps, workflows, and the two runners that drive them."""
