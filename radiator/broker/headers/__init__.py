"""Headers of client frames: parsing and validation."""
