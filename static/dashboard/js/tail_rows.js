// The table of the live tail: a bounded number of rows, the newest on top, which stay where they are
// while somebody reads further down. A row opens to what is known of its record.

import { brief, hexOf, jsonOf, sizeOf, visible } from "./tail_bytes.js";

const COLUMNS = 7;
const zone = document.body.dataset.zone;
const day = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "medium" });
let lastSecond = "";
let lastSecondText = "";

function timeOf(milliseconds) {
  const at = Number(milliseconds);
  if (!Number.isFinite(at) || at < 0 || at > 8.64e15) return milliseconds;
  const second = milliseconds.slice(0, -3);
  if (second !== lastSecond) [lastSecond, lastSecondText] = [second, day.format(at)];
  return `${lastSecondText}.${milliseconds.slice(-3).padStart(3, "0")}`;
}

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

export const keyOf = (row) => `${row.partition} ${row.offset} ${row.topic}`;

export class Rows {
  constructor(scroller, body, empty, topButton, recordBase) {
    Object.assign(this, { scroller, body, empty, topButton, recordBase });
    this.limit = 500;
    this.records = new Map();
    this.made = 0;
    this.hidden = [];
    this.unseen = 0;
    body.addEventListener("click", (event) => this.onClick(event));
    topButton.addEventListener("click", () => {
      scroller.scrollTop = 0;
      scroller.focus();
    });
    scroller.addEventListener("scroll", () => this.showTopButton());
    document.addEventListener("visibilitychange", () => this.flush());
  }

  setLimit(limit) {
    this.limit = limit;
    this.trim();
  }

  // Oldest first.
  add(rows) {
    this.hidden.push(...rows);
    if (this.hidden.length > this.limit) this.hidden.splice(0, this.hidden.length - this.limit);
    if (!document.hidden) this.flush();
  }

  // What is there now, so that a start with the last records does not show them twice.
  keys() {
    return new Set([...this.records.values(), ...this.hidden].map(keyOf));
  }

  flush() {
    if (document.hidden || !this.hidden.length) return;
    const fresh = this.hidden;
    this.hidden = [];
    const isReading = this.scroller.scrollTop > 0;
    const anchor = isReading ? this.firstInSight() : null;
    const before = anchor?.getBoundingClientRect().top;
    const made = document.createDocumentFragment();
    for (let index = fresh.length - 1; index >= 0; index -= 1) made.append(this.make(fresh[index]));
    this.body.prepend(made);
    this.trim();
    this.empty.hidden = true;
    if (isReading) {
      if (anchor?.isConnected) this.scroller.scrollTop += anchor.getBoundingClientRect().top - before;
      this.unseen += fresh.length;
    }
    this.showTopButton();
  }

  firstInSight() {
    const top = this.scroller.scrollTop;
    for (const row of this.body.children) if (row.offsetTop + row.offsetHeight > top) return row;
    return null;
  }

  showTopButton() {
    if (this.scroller.scrollTop <= 0) this.unseen = 0;
    this.topButton.hidden = this.unseen === 0;
    this.topButton.textContent = `↑ ${this.unseen.toLocaleString("en")} newer`;
  }

  trim() {
    while (this.records.size > this.limit) {
      const last = this.body.lastElementChild;
      this.records.delete(last.dataset.number);
      last.remove();
    }
  }

  clear() {
    this.body.replaceChildren();
    this.records.clear();
    this.hidden = [];
    this.unseen = 0;
    this.empty.hidden = false;
    this.scroller.scrollTop = 0;
    this.showTopButton();
  }

  make(row) {
    const number = String((this.made += 1));
    this.records.set(number, row);
    const open = element("button", { type: "button", className: "open", textContent: row.offset });
    open.setAttribute("aria-expanded", "false");
    open.setAttribute("aria-label", `Offset ${row.offset}, details`);
    const made = element(
      "tr",
      {},
      element("td", { className: "time", textContent: timeOf(row.time), title: `${row.time} ms${row.is_append_time ? ", when it was appended" : ""}` }),
      element("td", { className: "tail-topic", textContent: row.topic }),
      element("td", { className: "number", textContent: String(row.partition) }),
      element("td", { className: "number" }, open),
      element("td", { className: "payload" }, brief(row.key, 60, "no key")),
      element("td", { className: "payload value" }, brief(row.value, 300, "no value (tombstone)")),
      element("td", { className: "number", textContent: sizeOf((row.key?.size ?? 0) + (row.value?.size ?? 0)) }),
    );
    made.dataset.number = number;
    return made;
  }

  onClick(event) {
    const button = event.target.closest("button.open");
    if (!button) return;
    const row = button.closest("tr");
    const isOpen = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!isOpen));
    if (isOpen) row.nextElementSibling.remove();
    else row.after(this.makeDetail(this.records.get(row.dataset.number)));
  }

  makeDetail(row) {
    const cell = element("div");
    const link = this.recordBase && `${this.recordBase}${encodeURIComponent(row.topic)}/${row.partition}/${row.offset}/`;
    const isCut = row.key?.is_cut || row.value?.is_cut || row.headers.length < row.header_count || row.headers.some((header) => header.value?.is_cut);
    if (link) cell.append(element("p", {}, element("a", { href: link, textContent: isCut ? "Show all of this record" : "This record's page" })));
    if (isCut && !link) cell.append(element("p", { className: "muted", textContent: "Only the beginning is shown." }));
    cell.append(...this.payload("Value", row.value), ...this.payload("Key", row.key), ...this.headers(row));
    return element("tr", { className: "detail" }, element("td", { colSpan: COLUMNS }, cell));
  }

  payload(name, data) {
    const title = element("h3", { textContent: data === null ? name : `${name}, ${sizeOf(data.size)}${data.is_cut ? ", cut" : ""}` });
    if (data === null) return [title, element("p", { className: "none", textContent: "none (null)" })];
    const json = data.text !== undefined && !data.is_cut ? jsonOf(data.text) : null;
    const views = [];
    if (json !== null) views.push(["JSON", () => visible(json)]);
    if (data.text !== undefined) views.push(["Text", () => visible(data.text)]);
    views.push(["Hex", () => hexOf(data)]);
    const place = element("pre", { tabIndex: 0 });
    const buttons = views.map(([label, textOf]) => {
      const button = element("button", { type: "button", textContent: label });
      button.addEventListener("click", () => {
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
        place.textContent = textOf();
        place.classList.toggle("hex", label === "Hex");
        place.setAttribute("aria-label", `${name} as ${label}`);
      });
      return button;
    });
    buttons[0].click();
    return [title, element("div", { className: "row" }, ...buttons), place];
  }

  headers(row) {
    const title = element("h3", { textContent: `Headers, ${row.header_count}` });
    if (!row.header_count) return [title, element("p", { className: "none", textContent: "none" })];
    const body = element("tbody");
    for (const header of row.headers) {
      const name = element("th", { scope: "row", className: "mono", textContent: visible(header.name) });
      body.append(element("tr", {}, name, element("td", { className: "payload value" }, brief(header.value, 300, "null"))));
    }
    const head = element("thead", {}, element("tr", {}, element("th", { scope: "col", textContent: "Name" }), element("th", { scope: "col", textContent: "Value" })));
    const parts = [title, element("table", {}, head, body)];
    if (row.headers.length < row.header_count) parts.push(element("p", { className: "muted", textContent: `${row.header_count - row.headers.length} more` }));
    return parts;
  }
}
