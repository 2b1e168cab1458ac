"""What the headers of client frames mean."""
