// What every page does: tells the browser's time zone, closes menus, shows failures of htmx requests.

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const body = document.body;

if (body.dataset.zoneChoice === "browser") {
  const known = document.cookie.includes(`odradek_zone=${encodeURIComponent(zone)}`);
  document.cookie = `odradek_zone=${encodeURIComponent(zone)}; path=/; max-age=31536000; samesite=lax`;
  if (!known && body.dataset.zone !== zone && navigator.cookieEnabled) location.reload();
}

for (const select of document.querySelectorAll("select[data-zones]")) {
  // The list is long: only filled when somebody opens it.
  select.addEventListener("focus", () => {
    const present = new Set([...select.options].map((option) => option.value));
    for (const name of Intl.supportedValuesOf?.("timeZone") ?? []) {
      if (!present.has(name)) select.add(new Option(name, name));
    }
  }, { once: true });
}

for (const list of document.querySelectorAll("datalist[data-zone-names]")) {
  for (const name of Intl.supportedValuesOf?.("timeZone") ?? []) list.append(new Option(name, name));
}

// What can be scrolled sideways can be reached by keyboard, and says what it is.
const fits = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth || target.scrollHeight > target.clientHeight) makeReachable(target);
  }
});

function makeReachable(box) {
  if (box.hasAttribute("tabindex")) return;
  box.tabIndex = 0;
  const caption = box.querySelector("caption");
  const heading = caption ?? box.closest("section, main")?.querySelector("h1, h2");
  if (!box.hasAttribute("role")) box.setAttribute("role", "region");
  if (!box.hasAttribute("aria-label")) box.setAttribute("aria-label", heading?.textContent.trim() || "Table");
}

function watchBoxes(root) {
  for (const box of root.querySelectorAll(".table-scroll, pre")) fits.observe(box);
}
watchBoxes(document);
document.addEventListener("htmx:load", (event) => {
  if (event.target.matches?.(".table-scroll, pre")) fits.observe(event.target);
  watchBoxes(event.target);
});

document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

let toastTimer;
export function toast(text) {
  const place = document.getElementById("toast");
  place.textContent = text;
  place.classList.add("shown");
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => place.classList.remove("shown"), 6000);
}

// A part that renews itself, of something that is gone or not allowed any more: the answer's words take
// its place, and it asks no further.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr, requestConfig } = event.detail;
  const renewsItself = /\b(every|load)\b/.test(requestConfig.elt.getAttribute("hx-trigger") ?? "");
  if (!renewsItself || (xhr.status !== 403 && xhr.status !== 404)) return;
  event.detail.shouldSwap = true;
  event.detail.isError = false;
});
document.addEventListener("htmx:responseError", (event) => {
  if (event.detail.xhr.status === 401) location.reload();
  else toast(`The request failed (${event.detail.xhr.status}).`);
});
document.addEventListener("htmx:sendError", () => toast("The dashboard does not answer."));

// <button data-copy="#id" hidden> copies the text of that element; where the browser does not allow
// it, the text is selected.
function showCopiers(root) {
  for (const button of root.querySelectorAll("[data-copy]")) button.hidden = false;
}
showCopiers(document);
document.addEventListener("htmx:load", (event) => showCopiers(event.target));
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.querySelector(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(source.textContent);
    toast("Copied.");
  } catch {
    getSelection().selectAllChildren(source);
    toast("Selected: copy with Ctrl+C.");
  }
});
