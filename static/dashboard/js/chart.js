// Draws every `<div class="chart" data-chart="URL">` of the page, also those that htmx brings later.
// URL answers {times: [s], series: [{label, unit, values}]}; null is "not known". Drawn by uPlot, in
// the page's time zone and theme. Left and right move a reading along the curve, which is told to
// screen readers; all figures are in a table below. Fetched again every `data-refresh` s (10).

const base = new URL("../../vendor/uPlot/", import.meta.url);
const LIGHT = ["#0b6b74", "#a8480f", "#5b4bb3", "#2f6f1d", "#9c2c76", "#6a5a00"];
const DARK = ["#4fb8c2", "#f0a35e", "#a79bf0", "#8fd07a", "#e58ac4", "#d6c04a"];
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [1, 3], [12, 6]];
const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const COUNT_UNITS = ["", "k", "M", "G", "T"];
const BYTE_STEPS = Array.from({ length: 52 }, (_, i) => 2 ** i);
const MAX_ROWS = 60;
const charts = new Map();
let library;

function load() {
  library ??= new Promise((resolve, reject) => {
    const style = document.createElement("link");
    style.rel = "stylesheet";
    style.href = new URL("uPlot.min.css", base);
    document.head.append(style);
    const script = document.createElement("script");
    script.src = new URL("uPlot.iife.min.js", base);
    script.onload = () => resolve(window.uPlot);
    script.onerror = () => reject(new Error("uPlot could not be loaded"));
    document.head.append(script);
  });
  return library;
}

const zone = document.body.dataset.zone || "UTC";
const hours = new Intl.DateTimeFormat("en-GB", { timeZone: zone, hour: "2-digit", minute: "2-digit", second: "2-digit" });
const days = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "short" });

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}

function scaled(value, step, units) {
  let unit = 0;
  while (Math.abs(value) >= step * 0.9995 && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  const digits = value === 0 || Math.abs(value) >= 99.5 ? 0 : Math.abs(value) >= 9.95 ? 1 : 2;
  return [Number(value.toFixed(digits)).toString(), units[unit]];
}

/** A figure as the pages write it: three digits, its unit. */
export function figure(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "ms") {
    if (Math.abs(value) < 1000) return `${Math.round(value)} ms`;
    const s = value / 1000;
    if (s < 90) return `${Number(s.toFixed(1))} s`;
    if (s < 5400) return `${Number((s / 60).toFixed(1))} min`;
    return s < 129600 ? `${Number((s / 3600).toFixed(1))} h` : `${Number((s / 86400).toFixed(1))} d`;
  }
  if (unit.startsWith("bytes")) {
    const [text, name] = scaled(value, 1024, BYTE_UNITS);
    return `${text} ${name}${unit === "bytes/s" ? "/s" : ""}`;
  }
  const [text, name] = scaled(value, 1000, COUNT_UNITS);
  return `${text}${name}${unit.endsWith("/s") ? "/s" : ""}`;
}

/** Of a row of the table, which may stand for several points: those up to `last`. */
function mean(values, last, count) {
  const known = values.slice(Math.max(0, last - count + 1), last + 1).filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

/** Without the time before anything was measured, where that would be most of the chart. */
function trimmed({ times, series }) {
  const measured = series.filter((one) => one.name !== "limit");
  const first = times.findIndex((_, i) => measured.some((one) => one.values[i] !== null));
  const start = first - Math.ceil((times.length - first) / 8);
  if (first < times.length / 2 || start <= 0) return { times, series };
  return { times: times.slice(start), series: series.map((one) => ({ ...one, values: one.values.slice(start) })) };
}

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

class Chart {
  constructor(place) {
    this.place = place;
    this.title = place.dataset.title || "Chart";
    this.legend = element("p", "chart-legend small");
    this.canvas = element("div", "chart-canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "group");
    this.canvas.setAttribute("aria-label", `${this.title}: chart. Left and right arrow read values.`);
    this.reading = element("p", "chart-reading small muted");
    this.reading.setAttribute("aria-live", "polite");
    this.details = element("details", "small");
    this.details.append(element("summary", "", "Figures"));
    this.table = element("div", "table-scroll");
    this.details.append(this.table);
    place.replaceChildren(this.legend, this.canvas, this.reading, this.details);
    this.details.addEventListener("toggle", () => this.fillTable());
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("blur", () => this.point(null));
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.canvas);
    this.fetch();
  }

  async fetch() {
    try {
      const answer = await fetch(this.place.dataset.chart, { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(`answer ${answer.status}`);
      this.data = trimmed(await answer.json());
      this.draw(await load());
    } catch (error) {
      this.reading.textContent = `No chart now: ${error.message}.`;
    }
  }

  get isEmpty() {
    return this.data.series.every((one) => one.values.every((value) => value === null));
  }

  draw(uPlot) {
    const { times, series } = this.data;
    const shape = JSON.stringify([isDark(), series.map((one) => [one.label, one.unit])]);
    if (this.isEmpty) {
      this.plot?.destroy();
      this.plot = this.shape = undefined;
      this.legend.replaceChildren();
      this.reading.textContent = "Nothing has been measured in this time.";
      this.fillTable();
      return;
    }
    this.paintLegend(series);
    const columns = [times, ...series.map((one) => one.values)];
    if (this.plot && this.shape === shape) {
      this.plot.setData(columns);
    } else {
      this.plot?.destroy();
      this.plot = new uPlot(this.options(uPlot, series), columns, this.canvas);
      this.shape = shape;
    }
    if (this.index === undefined) this.reading.textContent = "";
    this.fillTable();
  }

  options(uPlot, series) {
    const style = getComputedStyle(document.documentElement);
    const colours = isDark() ? DARK : LIGHT;
    const grid = { stroke: style.getPropertyValue("--line").trim(), width: 1 };
    const axis = { stroke: style.getPropertyValue("--muted").trim(), font: "12px system-ui, sans-serif", grid, ticks: grid };
    const unit = series[0].unit;
    return {
      width: this.width,
      height: 190,
      padding: [null, 30, null, null], // half of the last time's words, which would be cut
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone),
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { size: 7 } },
      scales: { y: { range: (_, least, most) => [Math.min(0, least ?? 0), most > 0 ? most * 1.08 : 1] } },
      axes: [
        { ...axis, space: 72, values: [
          [86400, "{D}. {MMM}", null, null, null, null, null, null, 1],
          [3600, "{HH}:{mm}", "\n{D}. {MMM}", null, "\n{D}. {MMM}", null, null, null, 1],
          [60, "{HH}:{mm}", "\n{D}. {MMM}", null, "\n{D}. {MMM}", null, null, null, 1],
          [1, "{HH}:{mm}:{ss}", "\n{D}. {MMM}", null, "\n{D}. {MMM}", null, null, null, 1],
        ] },
        { ...axis, size: 78, ...(unit.startsWith("bytes") ? { incrs: BYTE_STEPS } : {}), values: (_, splits) => splits.map((value) => figure(value, unit)) },
      ],
      series: [{}, ...series.map((one, i) => ({
        label: one.label,
        stroke: colours[i % colours.length],
        width: 2,
        dash: DASHES[i % DASHES.length],
        points: { show: false },
      }))],
      hooks: { setCursor: [(plot) => this.read(plot.cursor.idx)] },
    };
  }

  get width() {
    return Math.max(200, Math.floor(this.canvas.clientWidth));
  }

  resize() {
    if (this.plot && this.plot.width !== this.width) this.plot.setSize({ width: this.width, height: 190 });
  }

  paintLegend(series) {
    const colours = isDark() ? DARK : LIGHT;
    this.legend.replaceChildren(...series.map((one, i) => {
      const item = element("span", "chart-key");
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      for (const [name, value] of [["width", 26], ["height", 8], ["aria-hidden", "true"]]) svg.setAttribute(name, value);
      const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
      for (const [name, value] of [["x1", 0], ["x2", 26], ["y1", 4], ["y2", 4], ["stroke", colours[i % colours.length]],
        ["stroke-width", 3], ["stroke-dasharray", DASHES[i % DASHES.length].join(" ") || "none"]]) line.setAttribute(name, value);
      svg.append(line);
      const last = one.values.findLast((value) => value !== null);
      item.append(svg, element("span", "", ` ${one.label} `), element("strong", "number", figure(last, one.unit)));
      return item;
    }));
  }

  /** Tell what the series are worth at a place of the curve. */
  read(index) {
    if (index === null || index === undefined || !this.data) return;
    const { times, series } = this.data;
    const worth = series.map((one) => `${one.label} ${figure(one.values[index], one.unit)}`).join(", ");
    this.reading.textContent = `${days.format(new Date(times[index] * 1000))}:${hours.format(new Date(times[index] * 1000)).slice(6)} · ${worth}`;
  }

  point(index) {
    this.index = index ?? undefined;
    if (!this.plot) return;
    if (index === null) {
      this.plot.setCursor({ left: -10, top: -10 });
      return;
    }
    this.plot.setCursor({ left: this.plot.valToPos(this.data.times[index], "x"), top: 10 });
    this.read(index);
  }

  onKey(event) {
    if (!this.plot) return;
    const last = this.data.times.length - 1;
    const from = this.index ?? last + 1;
    const step = event.shiftKey ? 10 : 1;
    const targets = { ArrowLeft: from - step, ArrowRight: from + step, Home: 0, End: last };
    if (!(event.key in targets)) return;
    event.preventDefault();
    this.point(Math.max(0, Math.min(last, targets[event.key])));
  }

  fillTable() {
    if (!this.details.open || !this.data) return;
    const { times, series } = this.data;
    const table = element("table");
    const caption = element("caption", "visually-hidden", `${this.title}, newest first`);
    const head = element("tr");
    for (const [i, text] of ["Time", ...series.map((one) => one.label)].entries()) {
      const cell = element("th", i ? "number" : "", text);
      cell.scope = "col";
      head.append(cell);
    }
    const step = Math.max(1, Math.ceil(times.length / MAX_ROWS));
    const rows = [];
    for (let i = times.length - 1; i >= 0; i -= step) {
      const row = element("tr");
      const at = element("th", "", days.format(new Date(times[i] * 1000)));
      at.scope = "row";
      row.append(at, ...series.map((one) => element("td", "number", figure(mean(one.values, i, step), one.unit))));
      rows.push(row);
    }
    const top = element("thead");
    top.append(head);
    const rest = element("tbody");
    rest.append(...rows);
    table.append(caption, top, rest);
    this.table.replaceChildren(table);
    this.table.tabIndex = 0;
    this.table.setAttribute("role", "region");
    this.table.setAttribute("aria-label", `${this.title}: figures`);
  }

  close() {
    this.observer.disconnect();
    this.plot?.destroy();
  }
}

function begin() {
  for (const [place, chart] of charts) {
    if (place.isConnected) continue;
    chart.close();
    charts.delete(place);
  }
  for (const place of document.querySelectorAll(".chart[data-chart]")) {
    if (!charts.has(place)) charts.set(place, new Chart(place));
  }
}

let seconds = 0;
setInterval(() => {
  seconds += 1;
  if (document.hidden) return;
  for (const [place, chart] of charts) {
    if (place.isConnected && seconds % Number(place.dataset.refresh || 10) === 0) chart.fetch();
  }
}, 1000);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of charts.values()) if (chart.data && window.uPlot) chart.draw(window.uPlot);
});
document.addEventListener("htmx:afterSettle", begin);
begin();
