// The field beside Start asks for what the chosen start needs; an empty form makes a short address.

const form = document.getElementById("message-form");
const start = form.elements.start;
const place = form.querySelector("[data-at]");
const field = form.elements.at;

const KINDS = {
  offset: { type: "text", inputMode: "numeric", placeholder: "42", label: "offset " },
  last: { type: "text", inputMode: "numeric", placeholder: "100", label: "N " },
  time: { type: "datetime-local", step: "0.001", label: `time in ${document.body.dataset.zone} ` },
};

function adapt(keep) {
  const kind = KINDS[start.value];
  place.hidden = !kind;
  field.disabled = !kind;
  if (!kind) return;
  const value = field.value;
  field.type = kind.type;
  if (kind.type === "datetime-local" && /^\d+$/.test(value)) field.type = "text"; // milliseconds, from a link
  field.inputMode = kind.inputMode ?? "";
  field.step = kind.step ?? "";
  field.placeholder = kind.placeholder ?? "";
  field.required = true;
  field.value = keep ? value : "";
  place.firstChild.textContent = kind.label;
}

adapt(true);
start.addEventListener("change", () => {
  adapt(false);
  if (!place.hidden) field.focus();
});
form.addEventListener("formdata", (event) => {
  for (const [name, value] of [...event.formData]) if (value === "") event.formData.delete(name);
  if (event.formData.get("start") === "newest") event.formData.delete("start");
  if (event.formData.get("view") === "auto") event.formData.delete("view");
  if (event.formData.get("rows") === "50") event.formData.delete("rows");
});
