"""Writes the page of all settings from the records that they are; `make docs` runs it, and a test says when to."""

from itertools import groupby
from pathlib import Path

from onepair.runs.config import Setting, all_settings, value_text

PAGE = Path(__file__).parent / "settings.md"
HEAD = """# All settings

Each can be given to `onepair train`, as `--set linear.penalty=0.3`, or in a TOML file with `--config`.
`onepair config --explain` shows the same with your own values. [How they work together](how-to/settings.md).
"""


def page() -> str:
    """The page as Markdown."""
    parts = [HEAD]
    for section, settings in groupby(all_settings(), lambda setting: setting.key.rpartition(".")[0]):
        lines = "\n".join(map(_line, settings))
        parts.append(f"## {section or 'The whole run'}\n\n| setting | default | meaning |\n|---|---|---|\n{lines}\n")
    return "\n".join(parts)


def _line(setting: Setting) -> str:
    default = value_text(setting.default)
    meaning = " ".join(setting.meaning.split()).replace("|", "\\|")
    return f"| `{setting.key}` | {f'`{default}`' if default else ''} | {meaning} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
