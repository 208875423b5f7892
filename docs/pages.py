"""Makes what the site has beside its Markdown: pages of commands, settings, methods and changes, formulas, the search.

MkDocs calls the functions `on_…` (mkdocs.yml: hooks); tests read `generated_pages`.
"""

import json
import re
from inspect import cleandoc
from itertools import groupby
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal, NamedTuple, get_args, get_origin

import typer

from onepair.cli.main import GROUPS, app
from onepair.methods import METHODS, find_method
from onepair.runs.config import Setting, all_settings, value_text

DOCS = Path(__file__).parent
ROOT = DOCS.parent
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def generated_pages() -> dict[str, str]:
    """Return the text of each page that is made from the code, by its path."""
    pages = {
        "reference/settings.md": settings_page(),
        "reference/methods.md": methods_page(),
        "project/changes.md": site_text((ROOT / "CHANGELOG.md").read_text("utf-8")),
        "project/contributing.md": site_text((ROOT / "CONTRIBUTING.md").read_text("utf-8")),
    }
    commands = all_commands()
    pages["reference/commands/index.md"] = commands_page(commands)
    pages |= {f"reference/commands/{each.slug}.md": command_page(each) for each in commands}
    return pages


# Commands


class Command(NamedTuple):
    """A command, by the words that call it."""

    words: str
    group: str
    command: Any  # of typer

    @property
    def slug(self) -> str:
        return self.words.replace(" ", "-")


def all_commands() -> list[Command]:
    """Return every command, those of a group by two words, in the order of the help."""
    top: Any = typer.main.get_command(app)
    found = []
    for name, each in top.commands.items():
        parts = {f"{name} {part}": command for part, command in getattr(each, "commands", {}).items()}
        for words, command in (parts or {name: each}).items():
            if not each.hidden and not command.hidden:
                found.append(Command(words, each.rich_help_panel or "Answers", command))
    return found


def examples_of(command: Command) -> dict[str, Path]:
    """Return the lines of the documents that show a command, and the page of each."""
    start = re.compile(rf"onepair (--import \S+ )?{command.words}(?![\w-])")
    blocks = (
        (page, block)
        for page in sorted(DOCS.glob("*/*.md"))
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    )
    lines = (
        (" ".join(line.split()), page) for page, block in blocks for line in block.replace("\\\n", " ").splitlines()
    )
    return {line: page for line, page in lines if start.match(line)}


def command_page(command: Command) -> str:
    """Return the page of a command: what it does, arguments, options and examples."""
    given = [each for each in command.command.params if each.param_type_name == "argument"]
    options = [each for each in command.command.params if each.param_type_name == "option" and not each.hidden]
    names = [each.name.upper() if each.required else f"[{each.name.upper()}]" for each in given]
    usage = " ".join(["onepair", command.words, *names, *(["[OPTIONS]"] if options else [])])
    parts = [f"# onepair {command.words}", cleandoc(command.command.help or ""), f"```\n{usage}\n```"]
    if given:
        parts.append(table("argument | meaning", *(f"`{each.name.upper()}` | {cell(each.help)}" for each in given)))
    for title, of in groupby(options, lambda each: each.rich_help_panel or "Options"):
        rows = (f"{flags(each)} | {default(each)} | {cell(each.help)}" for each in of)
        parts.append(f"## {title}\n\n" + table("option | default | meaning", *rows))
    if examples := examples_of(command):
        pages = {page: page.read_text("utf-8").partition("\n")[0].lstrip("# ") for page in examples.values()}
        links = ", ".join(f"[{title}](../../{page.relative_to(DOCS).as_posix()})" for page, title in pages.items())
        parts.append("## Examples\n\n```sh\n" + "\n".join([*examples][:8]) + f"\n```\n\nFrom: {links}.")
    return "\n\n".join(parts) + "\n"


def commands_page(commands: list[Command]) -> str:
    """Return the table of all commands, by what they are for."""
    parts = [
        "# Commands",
        "`onepair --help` lists them, `onepair COMMAND --help` shows the options of one. "
        "`onepair --import MODULE COMMAND` first imports a module of your own. "
        "Exit codes: 0 done, 1 the data have problems, 2 wrong use, 130 and 143 stopped.",
    ]
    for group in dict.fromkeys([*GROUPS, *(each.group for each in commands)]):
        rows = [
            f"[{each.words}]({each.slug}.md) | {cell((each.command.help or '').partition(chr(10) * 2)[0])}"
            for each in commands
            if each.group == group
        ]
        parts.append(f"## {group}\n\n" + table("command | what it does", *rows))
    return "\n\n".join(parts) + "\n"


def table(head: str, *rows: str) -> str:
    """Return a Markdown table from lines of cells."""
    return "\n".join(f"| {line} |" for line in (head, " | ".join(["---"] * (head.count("|") + 1)), *rows))


def cell(text: str | None) -> str:
    """Return a text in one line that no bar ends."""
    return " ".join((text or "").split()).replace("|", "\\|")


def flags(option: Any) -> str:
    """Return the names of an option, and what it takes."""
    names = ", ".join(f"`{each}`" for each in [*option.opts, *option.secondary_opts])
    kind = option.type_descriptor.annotation
    if option.is_flag:
        return names
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    value = option.metavar or " \\| ".join(map(str, choices)) or {int: "N", float: "NUMBER", Path: "PATH"}.get(kind, "")
    return f"{names} {value}".strip()


def default(option: Any) -> str:
    """Return the default of an option, where it says something."""
    if option.required:
        return "required"
    if option.default in (None, False, [], ()) or callable(option.default):
        return ""
    return "yes" if option.default is True else f"`{option.default}`"


# Settings, methods, pages of the repository


def settings_page() -> str:
    """Return the page of all settings, from the records that they are."""
    parts = [
        "# Settings",
        "Give any of them to `onepair train` with `--set linear.penalty=0.3`, or in a TOML file with `--config`. "
        "`onepair config --explain` prints them with your own values. "
        "[Train a classifier](../how-to/train.md) shows them at work.",
    ]
    for section, settings in groupby(all_settings(), lambda setting: setting.key.rpartition(".")[0]):
        rows = (f"`{each.key}` | {_value(each)} | {cell(each.meaning)}" for each in settings)
        parts.append(f"## {section or 'The whole run'}\n\n" + table("setting | default | meaning", *rows))
    return "\n\n".join(parts) + "\n"


def _value(setting: Setting) -> str:
    text = value_text(setting.default)
    return f"`{text}`" if text else ""


def methods_page() -> str:
    """Return the page of all methods, from their registry."""
    parts = [
        "# Methods",
        "`--method NAME` chooses one; `onepair methods NAME` shows its options. "
        "[Which method?](../explanation/which-method.md) helps to choose.",
    ]
    names = sorted(METHODS, key=lambda name: (name != "opml-plus", name))
    rows = (
        f"`{each.name}` | {each.title} | {each.paper} | {cell(each.description)}" for each in map(find_method, names)
    )
    return "\n\n".join([*parts, table("name | in the papers | paper | what it does", *rows)]) + "\n"


def site_text(text: str) -> str:
    """Return a page of the repository with links that lead somewhere on the site; the others become plain names."""

    def link(match: re.Match[str]) -> str:
        path = match[2].removeprefix("docs/").partition("#")[0]
        if match[2].startswith(("http", "#")):
            return match[0]
        if match[2].startswith("docs/") and (DOCS / path).is_file():
            return f"[{match[1]}](../{match[2].removeprefix('docs/')})"
        return match[1]

    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", link, text)


# What MkDocs calls


def on_config(config: Any) -> Any:
    """Put every study of docs/results into the navigation, in the order of file names."""
    for section in config.nav:
        for title, items in section.items():
            if title == "Results":
                named = {path for item in items for path in item.values()}
                studies = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.glob("results/*.md"))
                items.extend(path for path in studies if path not in named)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made from the code."""
    from mkdocs.structure.files import File

    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn formulas, $…$ and $$…$$ outside code, into MathML, which browsers show by themselves."""
    from latex2mathml.converter import convert

    def block(match: re.Match[str]) -> str:
        return f"\n\n{convert(match[1].strip(), display='block')}\n\n"

    def inline(match: re.Match[str]) -> str:
        return match[0] if match[1] is None else f"<span>{convert(match[1])}</span>"

    def formulas(text: str) -> str:
        text = re.sub(r"\$\$(.+?)\$\$", block, text, flags=re.DOTALL)
        return re.sub(r"`[^`\n]+`|\$([^$\n\"]+)\$", inline, text)

    parts, last = [], 0
    for code in FENCED.finditer(markdown):
        parts += [formulas(markdown[last : code.start()]), code[0]]
        last = code.end()
    return "".join([*parts, formulas(markdown[last:])])


def on_post_build(config: Any) -> None:
    """Write the search as a script, so that the site is searched without a server, too."""
    site = Path(config.site_dir)
    found = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    pages = {
        each["location"]: each["title"] for each in found if "#" not in each["location"]
    }  # whole pages, said twice
    sections = [
        {**each, "title": each["title"] if page == each["title"] else f"{page}: {each['title']}"}
        for each in found
        if "#" in each["location"] and (page := pages[each["location"].partition("#")[0]])
    ]
    (site / "search.js").write_text(f"window.sections = {json.dumps(sections, ensure_ascii=False)}\n", "utf-8")
    rmtree(site / "search")
