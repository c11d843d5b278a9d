"""Writes how to report a vulnerability into SECURITY.md, from vgpud/project/addresses.py; `--check` compares."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from vgpud.project.addresses import SECURITY_URL  # noqa: E402

SECURITY = ROOT / "SECURITY.md"
_BEGIN = "<!-- made by tools/addresses.py from vgpud/project/addresses.py -->\n"
_END = "<!-- end -->\n"


def replace(text: str, url: str) -> str:
    """The text of SECURITY.md with this address of the security contact, "" = none is set."""
    place = f"in private: <{url}>" if url else "to the maintainers in a private security advisory"
    sentence = f"Please report it {place}, not in a public issue.\n"
    block = re.compile(re.escape(_BEGIN) + ".*?" + re.escape(_END), re.DOTALL)
    made, count = block.subn(lambda _: _BEGIN + sentence + _END, text)
    if count != 1:
        raise SystemExit(f"SECURITY.md has no lines {_BEGIN.strip()} and {_END.strip()}: put them around the address")
    return made


def main() -> int:
    """0: SECURITY.md has the address of vgpud/project/addresses.py."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare, write nothing")
    is_check = parser.parse_args().check
    old_text = SECURITY.read_text()
    text = replace(old_text, SECURITY_URL)
    if is_check and text != old_text:
        print("SECURITY.md has another address than vgpud/project/addresses.py: run `make gen`", file=sys.stderr)
        return 1
    if not is_check:
        SECURITY.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
