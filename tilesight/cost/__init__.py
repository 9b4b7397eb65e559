"""Where counts meet rates and become seconds."""
