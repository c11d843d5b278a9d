"""How well jobs are ordered and placed: policies and rules on public traces, and what a decision costs."""
