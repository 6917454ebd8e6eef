"""Training a small decision model: adapters on a frozen decoder, a head for options, and their calibration."""
