"""Files that users name: read up to a size, and checked for what would keep a parser busy, before they are parsed."""
