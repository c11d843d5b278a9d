"""Files that users name: limited in size, and checked for constructs that would keep a parser busy, before parsing."""
