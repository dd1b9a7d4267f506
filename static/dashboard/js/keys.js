// Keys that work on every page, the box that goes anywhere, and the window that lists them. Single
// keys can be switched off, as speech input needs (WCAG 2.1.4); that is remembered by this browser.

const STORE = "odradek.keys";
const jump = document.getElementById("jump");
const help = document.getElementById("keys");
const single = document.getElementById("keys-single");

export function areSingleKeysOn() {
  return localStorage.getItem(STORE) !== "off";
}

function openJump() {
  if (!jump.open) jump.showModal();
  const input = jump.querySelector("input");
  input.select();
  input.dispatchEvent(new Event("open"));
}

// Enter may come before what was found for the last letter: then it waits for that.
let isGoing = false;

function goToFirst() {
  const found = jump.querySelector(".jump-found");
  if (found?.dataset.text !== jump.querySelector("input").value) return false;
  isGoing = false;
  const first = found.querySelector("a");
  if (first) location.assign(first.href);
  return true;
}

const places = () => [jump.querySelector("input"), ...jump.querySelectorAll("li a")];

function moveInJump(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    places()[places().indexOf(document.activeElement) + step]?.focus();
    event.preventDefault();
  }
}

const SEARCHES = '[role="search"] input[type="search"], #message-form textarea';
let isAfterG = false;
let afterG;

function go(key) {
  isAfterG = false;
  const link = [...document.querySelectorAll("nav.side a[data-key]")].find((one) => one.dataset.key === key);
  if (link) location.assign(link.href);
  return Boolean(link);
}

function onSingleKey(key) {
  if (isAfterG) return go(key);
  if (key === "?") help.showModal();
  else if (key === "/") {
    const search = document.querySelector(`main :is(${SEARCHES})`);
    search?.focus();
    return Boolean(search);
  } else if (key === "g") {
    isAfterG = true;
    clearTimeout(afterG);
    afterG = setTimeout(() => { isAfterG = false; }, 1500);
  } else return false;
  return true;
}

function onKey(event) {
  if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openJump();
    return;
  }
  // A window that has just closed holds the focus until the next frame.
  const field = event.target.closest?.("input, select, textarea, [contenteditable], dialog");
  if (field?.checkVisibility() || event.ctrlKey || event.metaKey || event.altKey || !areSingleKeysOn()) return;
  if (onSingleKey(event.key)) event.preventDefault();
}

if (jump) {
  document.addEventListener("keydown", onKey);
  jump.addEventListener("keydown", moveInJump);
  jump.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    isGoing = true;
    if (!goToFirst()) jump.querySelector("input").dispatchEvent(new Event("open"));
  });
  jump.querySelector("input").addEventListener("input", () => { isGoing = false; });
  document.addEventListener("htmx:afterSwap", () => { if (isGoing) goToFirst(); });
  for (const opener of document.querySelectorAll("[data-jump]")) {
    opener.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      openJump();
    });
  }
  for (const opener of document.querySelectorAll("[data-keys]")) {
    opener.hidden = false;
    opener.addEventListener("click", () => help.showModal());
  }
  for (const dialog of [jump, help]) {
    // A click beside the window closes it.
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  }
  single.checked = areSingleKeysOn();
  single.addEventListener("change", () => localStorage.setItem(STORE, single.checked ? "on" : "off"));
}
