"""Pure rules: what is redacted before it is written."""
