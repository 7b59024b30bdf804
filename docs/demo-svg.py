#!/usr/bin/env python3
"""Draws docs/demo.svg from what `leader demo` really prints.

    python3 docs/demo-svg.py [path of leader]

Needs nothing but Python: the text is drawn with whatever monospaced font the reader has.
"""
import html
import os
import pty
import re
import subprocess
import sys

LEADER = sys.argv[1] if len(sys.argv) > 1 else "target/release/leader"
HERE = os.path.dirname(os.path.abspath(__file__))
COLUMNS, CHAR, LINE, PAD = 80, 8.4, 19, 16
COLOURS = {"1": "#ffffff", "31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "2": "#8b949e"}


def printed():
    """Runs the demo with its stdout on a terminal, so that it is in colour; stderr is not shown."""
    master, slave = pty.openpty()
    env = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    child = subprocess.Popen([LEADER, "demo"], stdin=subprocess.DEVNULL, stdout=slave,
                             stderr=subprocess.DEVNULL, env={**env, "TERM": "xterm-256color"})
    os.close(slave)
    said = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:  # The terminal is closed: EIO on Linux (pty(7)).
            break
        if not piece:
            break
        said += piece
    if child.wait() != 0:
        sys.exit(f"{LEADER} demo ended with {child.returncode}")
    return said.decode().replace("\r\n", "\n").replace(LEADER, "leader")


def spans(line):
    """A line as pieces of one colour each."""
    colour, at = None, 0
    for mark in re.finditer(r"\x1b\[([0-9;]*)m", line):
        yield line[at:mark.start()], colour
        colour, at = COLOURS.get(mark.group(1)), mark.end()
    yield line[at:], colour


def main():
    lines = ["$ leader demo"] + printed().rstrip("\n").split("\n")
    height = 2 * PAD + LINE * len(lines)
    width = 2 * PAD + CHAR * COLUMNS
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
           f'viewBox="0 0 {width:.0f} {height}" role="img" aria-label="leader demo in a terminal">',
           f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>',
           '<g font-family="ui-monospace,Menlo,Consolas,monospace" font-size="14" fill="#c9d1d9" '
           'xml:space="preserve">']
    for number, line in enumerate(lines):
        y, pieces = PAD + LINE * number + 14, []
        column = 0
        for text, colour in spans(line):
            if text:
                paint = f' fill="{colour}"' if colour else ""
                x = PAD + CHAR * column
                pieces.append(f'<tspan x="{x:.1f}"{paint}>{html.escape(text)}</tspan>')
            column += len(text)
        if pieces:
            out.append(f'<text y="{y}">{"".join(pieces)}</text>')
    out += ["</g>", "</svg>", ""]
    with open(os.path.join(HERE, "demo.svg"), "w", encoding="utf-8") as file:
        file.write("\n".join(out))


main()
