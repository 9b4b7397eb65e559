"""Kernel families: a problem and a configuration become a plan. No costs here."""
