"""
The style sheet of the page that shows the descriptions. It has no character that HTML escapes: in a
style element escapes mean themselves.
"""

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --text: #1c2126; --quiet: #56616b; --back: #ffffff; --raised: #f3f5f7; --line: #cfd6dc;
  --link: #0a58a8;
}
@media (prefers-color-scheme: dark) {
  :root {
    --text: #e4e8ec; --quiet: #a3aeb8; --back: #14181c; --raised: #1e242a; --line: #39424b;
    --link: #7db8f5;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 60rem; padding: 1rem; color: var(--text); background: var(--back);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
}
h1, h2, h3, h4 { line-height: 1.25; }
h1 { margin: .5rem 0; font-size: 1.6rem; }
h2 { margin: 2.5rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h3 { margin: 1.25rem 0 .25rem; font-size: 1.05rem; }
h4 { margin: 1rem 0 0; font-size: 1rem; }
p { margin: .5rem 0; max-width: 46rem; }
ul { margin: .5rem 0; padding-left: 1.25rem; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; list-style: none; }
nav a { display: inline-block; padding: .25rem 0; }
a { color: var(--link); }
code { font-family: ui-monospace, monospace; font-size: .92em; }
details { margin: .375rem 0; border: 1px solid var(--line); border-radius: .375rem; }
details[open] { padding: 0 .75rem .5rem; }
article:target { outline: 2px solid var(--link); outline-offset: .5rem; }
summary {
  padding: .5rem .75rem; background: var(--raised); border-radius: .375rem; cursor: pointer;
}
details[open] summary { margin: 0 -.75rem .5rem; }
summary code { font-weight: 600; }
summary span { color: var(--quiet); }
@media (max-width: 40rem) { summary span { display: block; } }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
dl { margin: .5rem 0; }
dt { margin-top: .5rem; }
dt code:first-child { font-weight: 600; }
dd { margin: 0 0 0 1rem; color: var(--quiet); }
em { color: var(--quiet); }
"""
