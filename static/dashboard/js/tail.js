// The live tail's page: what is watched (also in the address), pause, counters, and a status in words.

import { areSingleKeysOn } from "./keys.js";
import { Rows, keyOf } from "./tail_rows.js";
import { TailSocket } from "./tail_socket.js";

const RATE_SPAN = 5000;
const AGAIN_LAST = 100;
const byId = (id) => document.getElementById(id);
const form = byId("tail");
const chosen = byId("tail-chosen");
const search = byId("tail-search");
const found = byId("tail-found");
const checkNote = byId("tail-check");
const status = byId("tail-status");
const trouble = byId("tail-trouble");
const pauseButton = byId("tail-pause");
const table = document.querySelector(".tail-table");
const filterInput = form.elements.filter;
const rows = new Rows(byId("tail-scroll"), byId("tail-rows"), byId("tail-empty"), byId("tail-top"), form.dataset.record);

let topics = [...chosen.querySelectorAll("[data-topic]")].map((item) => item.dataset.topic);
let appliedFilter = filterInput.value.trim();
let isPaused = false;
let topicStates = [];
let samples = [];
let run = 0;
// Of the next run: what is shown already, and how many rows may be these again.
let known = { keys: new Set(), left: 0 };
let checkId = 0;
let checkTimer = null;

// Status

function say(words, kind) {
  if (status.textContent !== words) status.textContent = words;
  status.className = `tail-status ${kind}`;
}

function showState() {
  if (!topics.length) return say("Choose a topic.", "");
  const troubled = topicStates.filter((one) => one.state !== "live");
  if (troubled.length) {
    const words = { starting: "starting", waiting: "waiting for the cluster", missing: "missing" };
    say(troubled.map((one) => `${one.topic}: ${words[one.state]}${one.text ? ` (${one.text})` : ""}`).join("; "), "warn");
  } else if (isPaused) say("Paused. What was shown stays.", "warn");
  else if (topicStates.length) say("Live.", "good");
  return undefined;
}

// Counters

const figure = (text) => BigInt(text).toLocaleString("en").replaceAll(",", "\u202f");

function showCounters(counters, sent) {
  for (const place of document.querySelectorAll("[data-count]")) place.textContent = figure(counters[place.dataset.count]);
  const skipped = BigInt(counters.skipped);
  const unmatched = BigInt(counters.unmatched);
  const failed = BigInt(counters.failed);
  const words = [];
  // While records wait, those that did not match are counted ahead of the others.
  const most = unmatched < skipped ? unmatched : skipped;
  if (most > 0n) words.push(`${figure(most)} did not match`);
  if (failed > 0n) words.push(`${figure(failed)} the filter failed on`);
  if (skipped > most + failed) words.push(`${figure(skipped - most - failed)} came too fast`);
  byId("tail-why").textContent = words.join(", ");
  samples.push([Number(sent), BigInt(counters.received), BigInt(counters.shown)]);
  showRates();
}

function showRates() {
  const now = samples.at(-1)?.[0] ?? 0;
  while (samples.length > 2 && samples[0][0] < now - RATE_SPAN) samples.shift();
  const span = samples.length > 1 ? now - samples[0][0] : 0;
  for (const [name, index] of [["received", 1], ["shown", 2]]) {
    const place = document.querySelector(`[data-rate=${name}]`);
    const perSecond = span ? (Number(samples.at(-1)[index] - samples[0][index]) * 1000) / span : 0;
    place.textContent = span ? `${perSecond >= 100 ? Math.round(perSecond).toLocaleString("en") : perSecond.toFixed(1)}/s` : "";
  }
}

// The socket

const socket = new TailSocket(form.dataset.socket, {
  opened: (isAgain) => start(isAgain ? AGAIN_LAST : Number(form.elements.last.value)),
  status: (words, kind, code) => {
    pauseButton.disabled = true;
    say(words, kind);
    if (code === 4401) {
      const link = document.createElement("a");
      link.href = location.href;
      link.textContent = "Sign in";
      status.append(" ", link);
    }
  },
  frame: (frame) => {
    if (frame.topics) topicStates = frame.topics;
    if (frame.run !== run) [run, samples] = [frame.run, []];
    if (frame.rows.length) rows.add(frame.rows.filter(isNew));
    if (frame.counters) showCounters(frame.counters, frame.sent);
    if (frame.check) showCheck(frame.check);
    if (frame.filter_trouble !== undefined) {
      trouble.hidden = frame.filter_trouble === "";
      trouble.textContent = `Filter: ${frame.filter_trouble}`;
    }
    showState();
  },
});

function isNew(row) {
  if (known.left === 0) return true;
  known.left -= 1;
  return !known.keys.has(keyOf(row));
}

function start(last) {
  if (!topics.length || !socket.isOpen) return;
  known = { keys: last ? rows.keys() : new Set(), left: last };
  pauseButton.disabled = false;
  socket.send({ type: "start", topics, filter: appliedFilter, last });
  if (isPaused) socket.send({ type: "pause" });
  if (filterInput.value.trim()) checkSoon();
}

function restart(last) {
  writeAddress();
  table.classList.toggle("several", topics.length > 1);
  if (!topics.length) {
    topicStates = [];
    pauseButton.disabled = true;
    if (socket.isOpen) socket.send({ type: "start", topics, filter: "", last: 0 });
  } else if (socket.isOpen) start(last);
  else socket.connect();
  showState();
}

function writeAddress() {
  const query = new URLSearchParams(topics.map((topic) => ["topic", topic]));
  if (appliedFilter) query.set("filter", appliedFilter);
  for (const name of ["last", "rows"]) query.set(name, form.elements[name].value);
  history.replaceState(null, "", `${location.pathname}?${query}`);
  for (const field of document.querySelectorAll(".saved-filters [name=query]")) field.value = query;
}

// Topics

function showChosen() {
  chosen.replaceChildren(
    ...topics.map((topic) => {
      const item = document.createElement("li");
      item.className = "chip";
      const input = Object.assign(document.createElement("input"), { type: "hidden", name: "topic", value: topic });
      const remove = Object.assign(document.createElement("button"), { type: "button", textContent: "×" });
      remove.setAttribute("aria-label", `Remove ${topic}`);
      remove.addEventListener("click", () => {
        topics = topics.filter((other) => other !== topic);
        showChosen();
        restart(0);
        search.focus();
      });
      item.append(topic, input, remove);
      return item;
    }),
  );
}

found.addEventListener("click", (event) => {
  const topic = event.target.closest("[data-topic]")?.dataset.topic;
  if (topic === undefined) return;
  if (topics.length < Number(form.dataset.maxTopics)) topics = [...new Set([...topics, topic])].sort();
  search.value = "";
  found.hidden = true;
  showChosen();
  restart(Number(form.elements.last.value));
  byId("tail-scroll").focus();
});
found.addEventListener("htmx:afterSwap", () => {
  found.hidden = !search.parentElement.contains(document.activeElement);
});
document.addEventListener("click", (event) => {
  if (!event.target.closest(".tail-chooser")) found.hidden = true;
});
document.querySelector(".tail-chooser").addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    found.hidden = true;
    search.focus();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const places = [search, ...found.querySelectorAll("button")];
    const next = places.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
    places[next]?.focus();
    event.preventDefault();
  }
});

// The filter

function checkSoon() {
  clearTimeout(checkTimer);
  const text = filterInput.value.trim();
  checkId += 1;
  if (!text) return note("", "");
  checkTimer = setTimeout(() => socket.send({ type: "check", id: checkId, filter: text }), 250);
  return undefined;
}

function note(words, kind) {
  checkNote.textContent = words;
  checkNote.className = `small tail-check ${kind}`;
  filterInput.setAttribute("aria-invalid", String(kind === "bad"));
}

function showCheck(check) {
  if (check.id !== checkId) return;
  if (check.error !== undefined) note(check.error, "bad");
  else if (!check.looked_at) note("The filter can be read; there is no record yet to try it on.", "good");
  else {
    const failed = check.failed ? `, cannot be evaluated for ${check.failed}` : "";
    note(`Matches ${check.matched} of the latest ${check.looked_at} records${failed}.`, check.failed ? "" : "good");
  }
}

filterInput.addEventListener("input", checkSoon);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (document.activeElement === search) {
    found.querySelector("button")?.click();
    return;
  }
  appliedFilter = filterInput.value.trim();
  restart(0);
});
form.elements.rows.addEventListener("change", () => {
  rows.setLimit(Number(form.elements.rows.value));
  writeAddress();
});
form.elements.last.addEventListener("change", () => restart(Number(form.elements.last.value)));

// Pause, clear, keys

function togglePause() {
  if (pauseButton.disabled) return;
  isPaused = !isPaused;
  pauseButton.setAttribute("aria-pressed", String(isPaused));
  pauseButton.textContent = isPaused ? "Resume" : "Pause";
  socket.send({ type: isPaused ? "pause" : "resume" });
  showState();
}

pauseButton.addEventListener("click", togglePause);
byId("tail-clear").addEventListener("click", () => rows.clear());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !areSingleKeysOn()) return;
  if (event.target.closest("input, select, textarea, button, a, summary, dialog")) return;
  if (event.key === " ") togglePause();
  else if (event.key === "/") filterInput.focus();
  else return;
  event.preventDefault();
});

rows.setLimit(Number(form.elements.rows.value));
showChosen();
restart(Number(form.elements.last.value));
