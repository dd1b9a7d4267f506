// The form of new records: more headers, and fields that follow from others.

const form = document.getElementById("produce");
const headers = document.getElementById("headers");
const empty = headers.lastElementChild.cloneNode(true);

function showRemovers() {
  for (const button of headers.querySelectorAll("[data-remove]")) button.hidden = headers.children.length < 2;
}

form.querySelector("[data-add-header]").hidden = false;
form.addEventListener("click", (event) => {
  if (event.target.matches("[data-add-header]")) {
    const row = empty.cloneNode(true);
    headers.append(row);
    row.querySelector("input").focus();
  } else if (event.target.matches("[data-remove]")) {
    const next = event.target.closest(".header").nextElementSibling;
    event.target.closest(".header").remove();
    (next?.querySelector("input") ?? form.querySelector("[data-add-header]")).focus();
  }
  showRemovers();
});

// Whoever types a key wants one; several records are text with separators, and no tombstone.
function follow() {
  const { value_is_null: tombstone, several, separator, own_separator: own, value } = form.elements;
  several.disabled = tombstone.checked;
  value.disabled = tombstone.checked;
  document.getElementById("several-options").hidden = !several.checked || tombstone.checked;
  own.closest("label").hidden = separator.value !== "own";
}
form.elements.key.addEventListener("input", () => { form.elements.key_is_null.checked = false; });
form.addEventListener("change", follow);
showRemovers();
follow();
