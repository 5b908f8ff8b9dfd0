"""Docstrings are plain Markdown; Sphinx reads them as reStructuredText. This turns the one into the other."""

import re

CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
EMPHASIS = re.compile(r"\*\*?(?=\S)[^*]+?(?<=\S)\*\*?(?!\w)")


def convert(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Called by autodoc: replaces the lines of a docstring."""
    lines[:] = "\n".join(map(restructured, blocks(lines))).splitlines()
    lines.append("")


def blocks(lines: list[str]) -> list[str]:
    """Paragraphs, tables, lists, doctests and indented code, each in one piece."""
    found: list[list[str]] = [[]]
    for line in lines:
        item, prompt = line.startswith("- "), line.lstrip().startswith(">>>")
        starts = found[-1] and ((prompt and not is_doctest(found[-1])) or (item and not found[-1][0].startswith("- ")))
        if not line.strip() or starts:
            found.append([])
        if line.strip():
            found[-1].append(line)
    return ["\n".join(block) for block in found if block]


def is_doctest(block: list[str]) -> bool:
    """Whether a block begins with a prompt."""
    return block[0].lstrip().startswith(">>>")


def restructured(block: str) -> str:
    """A block in reStructuredText, and a blank line after it."""
    lines = block.splitlines()
    if is_doctest(lines):
        return block + "\n"
    if lines[0].startswith("    "):
        return "::\n\n" + block + "\n"
    if lines[0].startswith("|"):
        return table(lines) + "\n"
    return inline(block) + "\n"


def table(lines: list[str]) -> str:
    """A Markdown table as a list-table."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    out = [".. list-table::", "   :header-rows: 1", ""]
    for row in [rows[0], *rows[2:]]:
        out += [f"   {'*' if place == 0 else ' '} - {inline(cell)}" for place, cell in enumerate(row)]
    return "\n".join(out) + "\n"


def inline(text: str) -> str:
    """Code gets two backticks; outside of it what reStructuredText would take for markup is escaped.

    >>> inline("`a|b` is |x| of s_i_")
    '``a|b`` is \\\\|x\\\\| of s\\\\_i\\\\_'
    """
    out, last = "", 0
    for code in CODE.finditer(text):
        out += escaped(text[last : code.start()])
        before = "\\ " if out and (out[-1].isalnum() or out[-1] in "*)’") else ""
        after = "\\ " if re.match(r"\w", text[code.end() : code.end() + 1]) else ""
        out += f"{before}``{' '.join(code[2].split())}``{after}"
        last = code.end()
    return out + escaped(text[last:])


def escaped(text: str) -> str:
    """Plain text, in which emphasis stays."""
    out, last = "", 0
    for strong in EMPHASIS.finditer(text):
        out += re.sub(r"([|*_\\])", r"\\\1", text[last : strong.start()]) + strong[0]
        last = strong.end()
    return out + re.sub(r"([|*_\\])", r"\\\1", text[last:])
