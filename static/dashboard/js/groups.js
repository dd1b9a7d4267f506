// The reset form shows the fields that its choices need. Without this script everything works, only
// with more fields in sight.

const form = document.querySelector(".reset-form");

function showNeeded() {
  const chosen = new FormData(form);
  for (const part of form.querySelectorAll("[data-for]")) {
    const isNeeded = part.dataset.when.split(" ").includes(chosen.get(part.dataset.for));
    part.hidden = !isNeeded;
    for (const input of part.querySelectorAll("input")) input.disabled = !isNeeded;
  }
  // A part inside a hidden part stays as that one says.
  for (const part of form.querySelectorAll("[data-for] [data-for]")) {
    if (part.parentElement.closest("[data-for]").hidden) {
      for (const input of part.querySelectorAll("input")) input.disabled = true;
    }
  }
}

if (form) {
  form.addEventListener("change", showNeeded);
  showNeeded();
}
