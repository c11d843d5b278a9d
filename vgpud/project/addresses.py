"""Where the project is: THE ONE PLACE to set its addresses; `make gen` then writes them to SECURITY.md.

Each is a URL, or "" as long as there is none: then nothing names it. The wheel, `vgpu --help`, `vgpu version`, manual
pages, the Debian package and messages that ask for a report take them from here. setup.py executes this file before
vgpud can be imported, so it imports nothing.
"""

#: SET THIS: the sources, as a browser opens them
REPOSITORY_URL = ""
#: SET THIS: where users report faults
ISSUES_URL = ""
#: SET THIS: where a vulnerability is reported in private: a page, or mailto:ADDRESS
SECURITY_URL = ""
#: SET THIS: who answers for the Debian package, as a name and an address
MAINTAINER = "The vgpud maintainers <maintainers@vgpud.invalid>"


def list_addresses() -> dict[str, str]:
    """Title -> URL of those that are set. Titles are well-known labels of a package's metadata."""
    every = {"Repository": REPOSITORY_URL, "Issues": ISSUES_URL, "Security": SECURITY_URL}
    return {title: url for title, url in every.items() if url}


def describe_addresses() -> str:
    """A paragraph of a help text (\\b: click keeps its lines); "" without any address."""
    lines = [f"  {title + ':':<11} {url}" for title, url in list_addresses().items()]
    return "\b\nThe project:\n" + "\n".join(lines) if lines else ""


def ask_for_report() -> str:
    """The end of a message about a fault of vgpud itself."""
    return f"please report it: {ISSUES_URL}" if ISSUES_URL else "please report it"
