"""Where entries live. The only place with SQL."""
