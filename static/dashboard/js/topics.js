// The list of topics: choosing several, and no renewal under the hands of somebody who chooses.

const chosen = () => document.querySelectorAll('input[name="topic"]:checked');

function showChoice() {
  const count = chosen().length;
  for (const button of document.querySelectorAll("[data-needs-choice]")) button.disabled = count === 0;
  const all = document.querySelector("[data-choose-all]");
  if (!all) return;
  const boxes = document.querySelectorAll('input[name="topic"]').length;
  all.checked = count > 0 && count === boxes;
  all.indeterminate = count > 0 && count < boxes;
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-choose-all]")) {
    for (const box of document.querySelectorAll('input[name="topic"]')) box.checked = event.target.checked;
  }
  showChoice();
});

document.addEventListener("htmx:beforeRequest", (event) => {
  const list = document.getElementById("topics-list");
  if (event.detail.elt === list && chosen().length > 0) event.preventDefault();
});
document.addEventListener("htmx:afterSwap", showChoice);
showChoice();
