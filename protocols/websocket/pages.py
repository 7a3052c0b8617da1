"""What a browser shows that looks at this port: a page without script or style. Pure."""

from __future__ import annotations

from html import escape
from typing import Final

#: Nothing may be run, framed, sent or remembered of it, and no other page may have its bytes.
PAGE_HEADERS: Final = (
    ("Content-Security-Policy", "default-src 'none'; base-uri 'none'; frame-ancestors 'none'"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


def page(title: str, text: str) -> str:
    """Return a page that says `text`, each line a paragraph."""
    lines = "\n".join(f"<p>{escape(line)}</p>" for line in text.split("\n"))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>Sluicegate: {escape(title)}</title>\n</head>\n<body>\n"
        f"<h1>Sluicegate</h1>\n{lines}\n</body>\n</html>"
    )
