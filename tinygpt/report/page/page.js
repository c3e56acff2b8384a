// Filter the tables. Without this script everything is shown.
const form = document.getElementById("filter");
const shown = document.getElementById("shown");

function apply() {
  const wanted = Object.fromEntries(new FormData(form));
  let cells = 0;
  for (const section of document.querySelectorAll("section")) {
    let rows = 0;
    for (const row of section.querySelectorAll("tbody tr")) {
      const level = !wanted.level || row.dataset.level === wanted.level;
      let matching = 0;
      for (const cell of row.querySelectorAll("td[data-verdict]")) {
        const good = !wanted.verdict || cell.dataset.verdict === wanted.verdict;
        cell.classList.toggle("faded", !good);
        matching += good;
      }
      row.hidden = !level || matching === 0;
      rows += !row.hidden;
      if (!row.hidden && (!wanted.subject || section.dataset.subject === wanted.subject)) cells += matching;
    }
    section.hidden = rows === 0 || (wanted.subject !== "" && section.dataset.subject !== wanted.subject);
  }
  shown.textContent = `${cells.toLocaleString("en")} verdicts shown`;
}

form.hidden = false;
form.addEventListener("change", apply);
apply();
