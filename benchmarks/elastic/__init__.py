"""A program that is trained by elastic workers."""
