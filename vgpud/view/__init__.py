"""How slices, jobs and usage are shown: rows, tables, texts and spans for the command line, the console and Ray."""
