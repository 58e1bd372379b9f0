"""report.html: one page with everything in it, nothing fetched, no script. Takes values and the pictures' SVG, writes no file."""

from __future__ import annotations

from collections.abc import Mapping

from jinja2 import Environment
from markupsafe import Markup

from strata_recipes.bench.summary import Summary
from strata_recipes.bench.tables import tables
from strata_recipes.bench.words import which

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ name }}</title>
<style>
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; margin-bottom: 1.5rem; }
caption { text-align: left; color: #555; padding-bottom: .3rem; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid #ddd; vertical-align: top; }
th { font-weight: 600; } td { white-space: nowrap; max-width: 28rem; } td.long { white-space: normal; min-width: 12rem; }
caption { white-space: nowrap; }
code { background: #f3f3f3; padding: 0 .2rem; overflow-wrap: anywhere; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
.told { border-left: 3px solid #d55e00; padding-left: .7rem; }
</style>
</head>
<body>
<h1>{{ name }}</h1>
<p>{{ summary.asked.pairs }} {{ "pair" if summary.asked.pairs == 1 else "pairs" }}, order alternating, page cache
{{ summary.asked.cache }}, {{ "%g" % summary.asked.settle_s }} s of rest before each run. Every run is a process of its own.</p>
<ul>
{%- for arm, words in summary.asked.arms.items() %}
<li><b>{{ arm }}</b>: {% for word in words %}<code>{{ word }}</code> {% else %}as composed{% endfor %}</li>
{%- endfor %}
</ul>
{%- if told %}
<div class="told"><b>Not every run is counted</b><ul>
{%- for line in told %}<li>{{ line }}</li>{% endfor %}</ul></div>
{%- endif %}
{%- for table in tables %}
<div class="wide"><table>
<caption>{{ table.title }}</caption>
<thead><tr>{% for cell in table.head %}<th scope="col">{{ cell }}</th>{% endfor %}</tr></thead>
<tbody>
{%- for row in table.rows %}
<tr>{% for cell in row %}<td{% if cell|length > 40 %} class="long"{% endif %}>{{ cell }}</td>{% endfor %}</tr>
{%- endfor %}
</tbody></table></div>
{%- endfor %}
{%- for title, picture in pictures.items() %}
<h2>{{ title }}</h2>
<figure>{{ picture }}</figure>
{%- endfor %}
<h2 id="not-measured">What was not measured</h2>
<ul>
{%- for line in unmeasured %}
<li>{{ line }}</li>
{%- endfor %}
</ul>
</body>
</html>
"""


def page(summary: Summary, pictures: Mapping[str, str]) -> str:
    """`pictures`: SVG by title. All text is escaped; the SVG is ours, so it is not."""
    template = Environment(autoescape=True).from_string(_PAGE)
    told = [f"{run.arm}, {which(run)}: {run.mark.value}, {run.why}" for run in summary.not_counted()]
    return template.render(
        name=summary.asked.name,
        summary=summary,
        told=told,
        tables=tables(summary),
        pictures={title: Markup(_inline(svg, number)) for number, (title, svg) in enumerate(pictures.items())},
        unmeasured=summary.to_dict()["not_measured"],
    )


def _inline(svg: str, number: int) -> str:
    """The <svg> element alone. Names of its parts get the picture's number: on one page they would mean each other's."""
    inner = svg[svg.index("<svg") :]
    for mark in ('id="', 'href="#', "url(#"):
        inner = inner.replace(mark, f"{mark}p{number}_")
    return inner
