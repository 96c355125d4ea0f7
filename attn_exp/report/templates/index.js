const body = document.querySelector("tbody"), heads = [...document.querySelectorAll("thead th")];
const filter = document.getElementById("filter"), shown = document.getElementById("shown");
const rows = [...body.rows].map(row => ({row, text: row.textContent.toLowerCase()}));
const collator = new Intl.Collator("en", {numeric: true});

function narrow() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const {row, text} of rows) {
    row.hidden = !words.every(word => text.includes(word));
    count += !row.hidden;
  }
  shown.value = count.toLocaleString("en");
}

function compare(left, right) {
  const numbers = [Number(left), Number(right)];
  return numbers.some(Number.isNaN) ? collator.compare(left, right) : numbers[0] - numbers[1];
}

function sort(column) {
  const up = heads[column].ariaSort !== "ascending";
  heads.forEach((head, place) => place === column ? head.ariaSort = up ? "ascending" : "descending" : head.removeAttribute("aria-sort"));
  const keyed = rows.map(each => [each.row.cells[column].textContent, each.row]);
  keyed.sort(([left], [right]) => (left === "") - (right === "") || (up ? 1 : -1) * compare(left, right));
  body.append(...keyed.map(each => each[1]));
}

heads.forEach((head, column) => {
  const button = document.createElement("button");
  button.append(...head.childNodes);
  button.addEventListener("click", () => sort(column));
  head.append(button);
});
filter.parentElement.hidden = false;
filter.addEventListener("input", narrow);
narrow();
