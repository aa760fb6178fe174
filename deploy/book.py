#!/usr/bin/env python3
"""`make docs`: builds the book from the documents with mdBook, checks its links, and writes llms.txt for language models.

    deploy/book.py FOLDER     FOLDER/html is the book, FOLDER/src its sources

docs/SUMMARY.md lists the chapters. Sources are copied with their places in the repository, so that relative links work
on a web page, in the repository and in an editor alike.
"""

import html.parser
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
BOOK = """\
[book]
title = "Kith"
description = "Distributed mini-batch training of graph neural networks"
language = "en"

[build]
build-dir = "html"

[output.html]
no-section-label = true
additional-css = ["book.css"]

[output.html.fold]
enable = true
level = 1

[output.html.search]
limit-results = 20
"""
# Tables and shell blocks need more than mdBook's 750 pixels.
CSS = ":root { --content-max-width: 1000px; }\n"
SUMMARY = "Kith trains graph attention networks (SuperGAT, GAT) and other GNNs on graphs from a few thousand nodes to \
billions of edges: full-batch or in mini-batches of sampled neighbors, on one machine or on a cluster, with the same \
results to the last bit. It is written in Rust."


def chapters():
    """Parts of the book: a title (or None) and its chapters, each a title and a path in the repository."""
    parts = [(None, [])]
    for line in (REPOSITORY / "docs/SUMMARY.md").read_text().splitlines()[1:]:
        if line.startswith("# "):
            parts.append((line[2:], []))
        elif link := re.search(r"\[(.*)\]\((.*)\)", line):
            path = (REPOSITORY / "docs" / link[2]).resolve().relative_to(REPOSITORY)
            parts[-1][1].append((link[1], path))
    return parts


def copy_sources(parts, source):
    for _, pages in parts:
        for _, path in pages:
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            # mdBook makes an index of every README, and a list of contents of the summary.
            text = (REPOSITORY / path).read_text()
            text = re.sub(r"(\]\([\w./-]*)README\.md", r"\1index.md", text).replace("](docs/SUMMARY.md)", "](toc.html)")
            (source / path).write_text(text)
    for picture in sorted((REPOSITORY / "docs").rglob("*.png")):
        path = picture.relative_to(REPOSITORY)
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, source / path)
    summary = (REPOSITORY / "docs/SUMMARY.md").read_text()
    summary = re.sub(r"\]\((?!\.\./)", "](docs/", summary).replace("](../", "](")
    (source / "SUMMARY.md").write_text(summary)


def first_sentence(text):
    """First sentence of the first paragraph after the title."""
    paragraph = text.split("\n\n")[1].replace("\n", " ")
    paragraph = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
    return re.split(r"(?<=[.:])\s", paragraph)[0].rstrip(":.") + "."


def write_llms(parts, pages):
    """The book's contents by https://llmstxt.org, and all of it as one file."""
    short, full = [f"# Kith\n\n> {SUMMARY}\n"], []
    for title, chapters_of_part in parts:
        short.append(f"\n## {title or 'Overview'}\n\n")
        for name, path in chapters_of_part:
            text = (REPOSITORY / path).read_text()
            short.append(f"- [{name}]({path}): {first_sentence(text)}\n")
            full.append(re.sub(r"<!-- test:.*?-->\n", "", text, flags=re.S))
            (pages / path).parent.mkdir(parents=True, exist_ok=True)
            (pages / path).write_text(full[-1])
    (pages / "llms.txt").write_text("".join(short))
    (pages / "llms-full.txt").write_text("\n".join(full))


class Page(html.parser.HTMLParser):
    """Links and names of one page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.names.add(attributes.get("id"))
        self.links += [attributes[key] for key in ("href", "src") if attributes.get(key)]


def dead_links(pages):
    read = {path: Page(path.read_text()) for path in pages.rglob("*.html")}
    for path, page in sorted(read.items()):
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc or path.name in ("404.html", "toc.html"):
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or parts.fragment and target in read and parts.fragment not in read[target].names:
                yield f"{path.relative_to(pages)}: {link}"


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    pages, source = folder / "html", folder / "src"
    for old in (pages, source):
        shutil.rmtree(old, ignore_errors=True)
    source.mkdir(parents=True)
    parts = chapters()
    copy_sources(parts, source)
    (folder / "book.toml").write_text(BOOK)
    (folder / "book.css").write_text(CSS)
    subprocess.run(["mdbook", "build", folder], check=True)
    write_llms(parts, pages)
    dead = list(dead_links(pages))
    if dead:
        sys.exit("error: dead links:\n" + "\n".join(dead))
    print(f"{pages / 'index.html'}: {sum(len(chapters) for _, chapters in parts)} chapters")


if __name__ == "__main__":
    main()
