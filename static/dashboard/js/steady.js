// Parts that renew themselves (hx-trigger="every …") stay as they are under a reader's hands: focus,
// scroll and what was opened outlive the swap; marked text and typing put the renewal off. A screen
// reader is told what came up, [data-news], once: not what merely stands there again.

const BOXES = ".table-scroll, .segments, pre";
let kept = null;

const isRenewal = (part) => /\bevery\b/.test(part.getAttribute("hx-trigger") ?? "");

function isInUse(part) {
  const marked = getSelection();
  if (!marked.isCollapsed && marked.rangeCount && marked.getRangeAt(0).intersectsNode(part)) return true;
  const active = document.activeElement;
  return part.contains(active) && active.matches("select, textarea, input:not([type=checkbox], [type=radio])");
}

/** What tells an element from the others of its part, before and after the swap. */
function nameOf(element) {
  if (element.id) return element.id;
  const row = element.closest("tr, li, section, form");
  const words = element.getAttribute("href") ?? `${element.getAttribute("name")} ${element.getAttribute("value")}`;
  return `${element.localName} ${words} ${row?.querySelector("th, a")?.textContent.trim() ?? ""}`;
}

/** Told by its words, or where these change with time by the name that the attribute gives. */
const newsOf = (part) => [...part.querySelectorAll("[data-news]")].map((one) => {
  const words = one.textContent.trim();
  return { mark: one.dataset.news || words, words };
});

const likewise = (part, selector, name) => [...part.querySelectorAll(selector)].find((one) => nameOf(one) === name);

document.addEventListener("htmx:beforeRequest", (event) => {
  const part = event.detail.elt;
  if (isRenewal(part) && (document.hidden || isInUse(part))) event.preventDefault();
});

document.addEventListener("htmx:beforeSwap", (event) => {
  const part = event.detail.target;
  kept = null;
  if (!part?.id) return;
  const active = document.activeElement;
  kept = {
    id: part.id,
    focus: part.contains(active) && active !== part ? { tag: active.localName, name: nameOf(active) } : null,
    scrolls: [...part.querySelectorAll(BOXES)].map((box) => [box.scrollLeft, box.scrollTop]),
    marks: newsOf(part).map((one) => one.mark),
    opened: [...part.querySelectorAll("details[open]")].map(nameOf),
  };
});

document.addEventListener("htmx:afterSwap", () => {
  const part = kept && document.getElementById(kept.id);
  if (!part) return;
  for (const name of kept.opened) {
    const details = likewise(part, "details", name);
    if (details) details.open = true;
  }
  const boxes = part.querySelectorAll(BOXES);
  kept.scrolls.forEach(([left, top], i) => boxes[i]?.scrollTo({ left, top, behavior: "instant" }));
  const fresh = newsOf(part).filter((one) => !kept.marks.includes(one.mark));
  if (fresh.length) document.getElementById("news").textContent = fresh.map((one) => one.words).join(" ");
  if (kept.focus) likewise(part, kept.focus.tag, kept.focus.name)?.focus({ preventScroll: true });
  kept = null;
});
