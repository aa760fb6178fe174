"""Draws the panels of dashboard.json from a Prometheus, where no Grafana runs.

    draw.py --prometheus http://127.0.0.1:9090 --start UNIX --end UNIX --out FILE.png [--job REGEX] [--mark UNIX=TEXT]…

It asks the queries of the dashboard, and draws panels of the types row, stat and timeseries in their places. Colors,
fonts and the time axis are not Grafana's. With --check, the exit code is 1 if a panel has no data and is not named in
--may-be-empty. Needs matplotlib and Pillow, which comes with it.
"""

import argparse
import json
import math
import re
import sys
import textwrap
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

DASHBOARD = Path(__file__).with_name("dashboard.json")
TIMEOUT = 30.0
# Pixels: width of the picture, height of a unit of gridPos, space around panels and inside them.
WIDTH, UNIT, GAP, PAD, Y_LABELS, TITLE = 1600, 27, 5, 8, 66, 24
N_COLUMNS, DPI, MAX_POINTS, HEAD_CHARACTERS, N_SHADES = 24, 100, 300, 230, 192
INK, FAINT, FRAME = "#1f2329", "#6b7280", "#d5d9df"
COLORS = [colormaps["tab10"](number) for number in (0, 1, 2, 3, 4, 5, 6, 8, 9, 7)]
# Suffixes of units, and the smallest value of each, in descending order.
Scale = list[tuple[float, str]]
SCALES: dict[str, Scale] = {
    "short": [(1e9, " Bil"), (1e6, " Mil"), (1e4, " K"), (0, "")],
    "s": [(7200, " h"), (120, " min"), (1, " s"), (1e-3, " ms"), (0, " µs")],
    "bytes": [(2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"), (0, " B")],
    "Bps": [(1e9, " GB/s"), (1e6, " MB/s"), (1e3, " kB/s"), (0, " B/s")],
    "percentunit": [(0, "%")],
}
FACTORS = {" K": 1e3, " h": 3600.0, " min": 60.0, " µs": 1e-6, "%": 0.01}


@dataclass(frozen=True)
class Range:
    """Times of a query: a multiple of `step` since `start`."""

    start: float
    end: float
    step: int

    @property
    def times(self) -> list[float]:
        return [self.start + number * self.step for number in range(int((self.end - self.start) / self.step) + 1)]


@dataclass(frozen=True)
class Series:
    """A line of a panel; values that are missing are NaN."""

    name: str
    values: list[float]

    @property
    def finite(self) -> list[float]:
        return [value for value in self.values if math.isfinite(value)]


def ask(prometheus: str, target: dict[str, Any], job: str, times: Range) -> list[Series]:
    """Series of a query that have a value."""
    query = {"query": target["expr"].replace("$job", job).replace("$__rate_interval", "1m"), "start": times.start, "end": times.end, "step": times.step}
    address = f"{prometheus.rstrip('/')}/api/v1/query_range?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:
        found = json.load(answer)["data"]["result"]
    series = []
    for one in found:
        name = target["legendFormat"]
        for label in re.findall(r"{{(\w+)}}", name):
            name = name.replace(f"{{{{{label}}}}}", one["metric"].get(label, ""))
        values = {round((float(time) - times.start) / times.step): float(value) for time, value in one["values"]}
        series.append(Series(name, [values.get(place, math.nan) for place in range(len(times.times))]))
    return sorted((one for one in series if one.finite), key=lambda one: one.name)


def data_of(panel: dict[str, Any], prometheus: str, job: str, times: Range) -> list[Series]:
    """Data of a panel; none if one of its queries fails."""
    series = []
    for target in panel["targets"]:
        try:
            series += ask(prometheus, target, job, times)
        except urllib.error.HTTPError as error:
            print(f"{panel['title']}: {error.read().decode(errors='replace').strip()}", file=sys.stderr)
            return []
    return series


def scale_of(unit: str, most: float) -> tuple[float, str]:
    """Factor and suffix for values up to `most`."""
    if unit not in SCALES:
        raise SystemExit(f"error: expected a unit of {', '.join(SCALES)}, found {unit}: dashboard.json")
    least, suffix = next(entry for entry in SCALES[unit] if most >= entry[0])
    return FACTORS.get(suffix, least or 1.0), suffix


class Picture:
    """The dashboard on a page."""

    def __init__(self, n_units: int, head: list[str], times: Range, marks: list[float]) -> None:
        self.times, self.marks = times, marks
        self.top = PAD + 20 * len(head)
        self.height = self.top + n_units * UNIT + PAD
        self.figure = Figure(figsize=(WIDTH / DPI, self.height / DPI), dpi=DPI, facecolor="white")
        FigureCanvasAgg(self.figure)
        for number, line in enumerate(head):
            self.write(PAD, PAD + 20 * number + 10, line, size=13 if number == 0 else 9, bold=number == 0)

    def write(self, x: float, y: float, text: str, size: float, bold: bool = False, **rest: Any) -> None:
        """Writes text, in pixels from the top left; `y` is its middle."""
        place = (x / WIDTH, 1 - y / self.height)
        weight = "bold" if bold else "normal"
        self.figure.text(*place, text, **{"size": size, "weight": weight, "color": INK, "va": "center", **rest})

    def draw(self, panel: dict[str, Any], series: list[Series]) -> None:
        place = panel["gridPos"]
        x, y = place["x"] * WIDTH / N_COLUMNS + GAP, self.top + place["y"] * UNIT + GAP
        width, height = place["w"] * WIDTH / N_COLUMNS - 2 * GAP, place["h"] * UNIT - 2 * GAP
        if panel["type"] == "row":
            self.write(x, y + height / 2, panel["title"], size=12, bold=True)
            return
        corner = (x / WIDTH, 1 - (y + height) / self.height)
        box = Rectangle(corner, width / WIDTH, height / self.height, fill=False, edgecolor=FRAME, linewidth=1)
        self.figure.add_artist(box)
        self.write(x + PAD, y + PAD + 6, panel["title"], size=9.5, bold=True)
        if not series:
            self.write(x + width / 2, y + height / 2 + 6, "no data", size=11, color=FAINT, ha="center")
        elif panel["type"] == "stat":
            value = series[0].finite[-1]
            factor, suffix = scale_of(panel["fieldConfig"]["defaults"]["unit"], abs(value))
            self.write(x + width / 2, y + height / 2 + 9, f"{value / factor:.4g}{suffix}", size=21, ha="center")
        elif panel["type"] == "timeseries":
            self.draw_lines(panel["fieldConfig"]["defaults"], series, (x, y, width, height))
        else:
            raise SystemExit(f"error: expected a row, stat or timeseries, found {panel['type']}: {panel['title']}")

    def draw_lines(self, field: dict[str, Any], series: list[Series], box: tuple[float, float, float, float]) -> None:
        x, y, width, height = box
        axes = self.figure.add_axes((0, 0, 1, 1))
        is_stacked = field["custom"].get("stacking", {}).get("mode") == "normal"
        most = max(abs(value) for one in series for value in one.finite)
        if is_stacked:
            columns = zip(*(one.values for one in series), strict=True)
            most = max(sum(filter(math.isfinite, column)) for column in columns)
        factor, suffix = scale_of(field["unit"], field.get("max", most))
        seconds = [time - self.times.start for time in self.times.times]
        lines = [[value / factor if math.isfinite(value) else math.nan for value in one.values] for one in series]
        names = [one.name for one in series]
        if is_stacked:
            filled = [[0.0 if math.isnan(value) else value for value in line] for line in lines]
            opacity = field["custom"].get("fillOpacity", 100) / 100
            drawn: list[Any] = axes.stackplot(seconds, filled, colors=COLORS, alpha=opacity, linewidth=0)
        else:
            colors = zip(lines, COLORS * math.ceil(len(lines) / len(COLORS)), strict=False)
            drawn = [axes.plot(seconds, line, color=color, linewidth=1.3, clip_on=False)[0] for line, color in colors]
        lowest = min(value for one in series for value in one.finite)
        axes.set_ylim(field.get("min", 0 if lowest >= 0 else None), field["max"] / factor if "max" in field else None)
        if most == 0:
            axes.set_ylim(0, 1)
        self.style(axes, suffix)
        # The legend takes the rows that it needs; the axes take the rest.
        for n_columns in range(len(names), 0, -1):
            legend = axes.legend(
                drawn, names, ncols=n_columns, loc="lower left", bbox_transform=self.figure.transFigure, frameon=False,
                bbox_to_anchor=((x + PAD) / WIDTH, 1 - (y + height - 3) / self.height), borderaxespad=0, borderpad=0,
                fontsize=7.5, handlelength=1.1, handletextpad=0.4, columnspacing=1.0, labelspacing=0.25, labelcolor=INK,
            )  # fmt: skip
            extent = legend.get_window_extent()
            if extent.width <= width - 2 * PAD:
                break
        left, base = x + Y_LABELS, y + height - extent.height - 25
        size = ((x + width - left - 22) / WIDTH, (base - y - TITLE - 8) / self.height)
        axes.set_position((left / WIDTH, 1 - base / self.height, *size))

    def style(self, axes: Axes, suffix: str) -> None:
        span = self.times.end - self.times.start
        axes.set_xlim(0, span)
        seconds, unit = time_unit(span)
        ticks = MaxNLocator(7, steps=[1, 2, 5, 10]).tick_values(0, span / seconds)
        axes.set_xticks([tick * seconds for tick in ticks if 0 <= tick * seconds <= span])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick / seconds:g} {unit}"))
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:.6g}{suffix}" if tick else "0"))
        axes.tick_params(labelsize=7.5, colors=FAINT, length=0, pad=3)
        axes.grid(color="#e8eaee", linewidth=0.7)
        axes.set_axisbelow(True)
        for side, spine in axes.spines.items():
            spine.set_visible(side == "bottom")
            spine.set_color(FRAME)
        where = axes.get_xaxis_transform()
        for number, mark in enumerate(self.marks, 1):
            axes.axvline(mark - self.times.start, color=FAINT, linewidth=0.8, linestyle=":")
            place = mark - self.times.start, 1.02
            axes.text(*place, str(number), transform=where, size=6.5, color=FAINT, ha="center", va="bottom")


def time_unit(span: float) -> tuple[int, str]:
    """Seconds of the unit for times of a span, and its name."""
    units = [(86400, "d"), (3600, "h"), (60, "min"), (1, "s")]
    return next((unit for unit in units if span >= 3 * unit[0]), units[-1])


def heading(times: Range, marks: list[tuple[float, str]]) -> list[str]:
    """Title of the dashboard, and the events."""
    seconds, unit = time_unit(times.end - times.start)
    events = [f"{n}: {text} ({(time - times.start) / seconds:.1f} {unit})" for n, (time, text) in enumerate(marks, 1)]
    title = json.loads(DASHBOARD.read_text())["title"]
    return [title, *textwrap.wrap("    ".join(event.replace(" ", "\xa0") for event in events), HEAD_CHARACTERS)]


def event(text: str) -> tuple[float, str]:
    time, _, name = text.partition("=")
    return float(time), name


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prometheus", required=True, metavar="URL", help="as in http://127.0.0.1:9090")
    parser.add_argument("--start", required=True, type=float, metavar="UNIX", help="in seconds since 1970")
    parser.add_argument("--end", required=True, type=float, metavar="UNIX", help="in seconds since 1970")
    parser.add_argument("--job", default=".*", metavar="REGEX", help="jobs of Prometheus (default: all)")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE.png")
    parser.add_argument("--mark", action="append", type=event, default=[], metavar="UNIX=TEXT", help="an event to mark")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a panel has no data")
    parser.add_argument("--may-be-empty", default="", metavar="TITLE,…", help="panels without data that --check allows")
    args = parser.parse_args()
    if args.end <= args.start:
        parser.error("expected --start before --end")
    times = Range(args.start, args.end, max(1, math.ceil((args.end - args.start) / MAX_POINTS)))
    panels = json.loads(DASHBOARD.read_text())["panels"]
    n_units = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    picture = Picture(n_units, heading(times, args.mark), times, [time for time, _ in args.mark])
    wrong = []
    for panel in panels:
        try:
            series = [] if panel["type"] == "row" else data_of(panel, args.prometheus, args.job, times)
        except OSError as error:
            parser.exit(1, f"error: {args.prometheus}: {error}\n")
        picture.draw(panel, series)
        # Titles may have commas.
        may_be_empty = panel["type"] == "row" or f",{panel['title']}," in f",{args.may_be_empty},"
        if args.check and not series and not may_be_empty:
            wrong.append(panel["title"])
    picture.figure.savefig(args.out)
    # Few colors are in it: with a palette, it takes a third of the space.
    Image.open(args.out).convert("RGB").quantize(N_SHADES, dither=Image.Dither.NONE).save(args.out, optimize=True)
    if wrong:
        print(f"error: no data: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
