(() => {
  // A cell of a walk says how it came about, in the numbers that the tables show.
  const OWN = ["q", "k", "v", "scores", "logits", "capped", "masked", "weights", "context", "output"];
  const said = document.createElement("p");
  said.className = "why touch";
  said.setAttribute("role", "status");

  const stepAt = (walk, stage) => {
    const back = /^(x|memory|[Wb]_.)$/.test(stage); // shown once, in the first walk that uses it
    for (let number = walk; number > 0; number--) {
      const step = document.getElementById(`walk-${number}-${stage}`);
      if (step || !back) return step;
    }
    return null;
  };
  const tableAt = (walk, stage, head) => stepAt(walk, stage)?.querySelector(`[data-head="${head}"] table`);
  const cellAt = (walk, stage, head, row, column) => tableAt(walk, stage, head)?.tBodies[0].rows[row]?.cells[column + 1];
  const sizes = (walk, stage) => stepAt(walk, stage).dataset.shape.split(" ").map(Number);
  const text = (cell) => (cell.querySelector("ins") || cell).textContent; // the new number of a changed cell
  const value = (cell) => Number(text(cell).replace("−", "-").replace("∞", "Infinity"));
  const half = (cell) => 0.5 * 10 ** -(text(cell).split(".")[1] || "").length;
  const short = (number) => (Math.abs(number) >= 1e4 ? number.toExponential(2) : number.toFixed(4)).replace("-", "−");
  const lastOf = (walk, before) => OWN.slice(3, OWN.indexOf(before)).reverse().find((stage) => stepAt(walk, stage));

  /** A sum of products of cells, `count` of them in all, and whatever cell is added at the end. */
  function product(cell, pairs, count, added) {
    if (!pairs.length || pairs.some(([one, other]) => !one || !other)) return null;
    let total = added ? value(added) : 0, slack = half(cell) + (added ? half(added) : 0);
    for (const [one, other] of pairs) {
      total += value(one) * value(other);
      slack += Math.abs(value(one)) * half(other) + Math.abs(value(other)) * half(one) + half(one) * half(other);
    }
    const terms = pairs.map(([one, other]) => `${text(one)} × ${value(other) < 0 ? `(${text(other)})` : text(other)}`);
    if (added) terms.push(text(added));
    const hidden = { rest: short(value(cell) - total), count: count - pairs.length };
    if (pairs.length < count) terms.push(fill(words.REST_OF_MORE, hidden));
    const apart = pairs.length >= count && Math.abs(total - value(cell)) > slack;
    return { sum: terms.join(" + ").replaceAll("+ −", "− "), lit: [...pairs.flat(), ...(added ? [added] : [])], apart: apart && total };
  }

  const range = (count, make) => Array.from({ length: Math.min(count, 16) }, (_, place) => make(place));

  function projected(walk, stage, head, row, column, cell, facts) {
    const source = stage !== "q" && stepAt(walk, "memory") ? "memory" : "x";
    const whole = sizes(walk, stage), width = whole.at(-1);
    if (!stepAt(walk, source) || sizes(walk, `W_${stage}`)[1] !== whole[0] * width) return null; // given, or a mean of heads
    const place = head * width + column, many = sizes(walk, source)[1];
    const pairs = range(many, (inner) => [
      cellAt(walk, source, 0, row + (stage === "q" ? Number(facts.past) : 0), inner), cellAt(walk, `W_${stage}`, 0, inner, place)]);
    return product(cell, pairs, many, cellAt(walk, `b_${stage}`, 0, 0, place));
  }

  function softened(walk, head, row, column, cell, facts) {
    const before = lastOf(walk, "weights"), line = before && tableAt(walk, before, head)?.tBodies[0].rows[row];
    if (!line) return null;
    const cells = [...line.cells].slice(1), own = cells[column], lit = cells;
    if (facts.normalizer === "sigmoid") return { sum: `1 / (1 + exp(−(${text(own)})))`, lit: [own] };
    const whole = { function: facts.normalizer, numbers: cells.map(text).join(", "), place: column + 1 };
    if (facts.normalizer !== "softmax") return { sum: fill(words.PLACE_OF_MANY, whole), lit };
    const seen = cells.filter((each) => value(each) > -Infinity), most = Math.max(...seen.map(value));
    if (!seen.length) return { sum: words.SEES_NO_KEY, lit };
    if (value(own) === -Infinity) return { sum: words.NO_SHARE, lit: [own] };
    const less = most > 30 ? ` − ${most}` : "", power = (each) => Math.exp(value(each) - (less ? most : 0));
    const total = seen.reduce((sum, each) => sum + power(each), 0), panel = window.attention.panels[facts.panel];
    const exact = panel ? panel.weights[(head * panel.shape[1] + row) * panel.shape[2] + column] : value(cell);
    const rest = power(own) / exact - total, left = panel && panel.shape[2] > cells.length;
    const further = exact > 0 && rest > total * (left ? 0 : 0.01) ? rest : 0;
    const others = fill(left ? words.REST_OF_KEYS : words.REST_OF_ELSE, { rest: short(further) });
    const below = seen.map((each) => `exp(${text(each)}${less})`).join(" + ") + (further ? ` + ${others}` : "");
    return { sum: `exp(${text(own)}${less}) / (${below}) = ${short(power(own))} / ${short(total + further)}`, lit };
  }

  function why(walk, stage, head, row, column, cell, facts, note) {
    const key = Math.floor(head / Number(facts.share));
    if (["q", "k", "v"].includes(stage)) return projected(walk, stage, head, row, column, cell, facts);
    if (stage === "scores") {
      const many = sizes(walk, "q").at(-1);
      return product(cell, range(many, (inner) => [cellAt(walk, "q", head, row, inner), cellAt(walk, "k", key, column, inner)]), many);
    }
    if (stage === "weights") return softened(walk, head, row, column, cell, facts);
    if (stage === "context") {
      if (!stepAt(walk, "weights")) return null;
      const many = sizes(walk, "weights").at(-1);
      return product(cell, range(many, (inner) => [cellAt(walk, "weights", head, row, inner), cellAt(walk, "v", key, inner, column)]), many);
    }
    if (stage === "output") {
      if (!stepAt(walk, "context")) return null;
      const [heads, , width] = sizes(walk, "context"), from = (place) => cellAt(walk, "context", Math.floor(place / width), row, place % width);
      if (facts.mixed) return product(cell, range(heads * width, (place) => [from(place), cellAt(walk, "W_o", 0, place, column)]), heads * width, cellAt(walk, "b_o", 0, 0, column));
      const own = from(column);
      return own && { sum: heads > 1 ? fill(words.C_OF_HEAD, { number: Math.floor(column / width) + 1 }) : `C`, lit: [own] };
    }
    const before = lastOf(walk, stage), own = before && cellAt(walk, before, head, row, column);
    if (!own) return null;
    if (stage === "logits") {
      const off = Math.abs(Number(facts.c) * value(own) - value(cell)) > half(cell) + Math.abs(facts.c) * half(own) && Number(facts.c) * value(own);
      return { sum: `${Number(Number(facts.c).toPrecision(6))} × ${text(own)}`, lit: [own], apart: off };
    }
    if (stage === "capped") return { sum: fill(words.FUNCTION_OF, { function: note, number: text(own) }), lit: [own] };
    if (value(cell) === -Infinity) return { sum: fill(words.MAY_NOT_SEE, { number: text(own) }), lit: [own] };
    const added = short(value(cell) - value(own));
    return { sum: `${text(own)} + ${Number(added) === 0 ? 0 : `(${added})`}`, lit: [own] };
  }

  function clear() {
    document.querySelectorAll(".source, .asked").forEach((cell) => cell.classList.remove("source", "asked"));
    said.remove();
  }

  function show(cell) {
    clear();
    const step = cell.closest(".step"), table = cell.closest("table"), section = cell.closest(".walk");
    const [, walk, stage] = /^walk-(\d+)-(.*)$/.exec(step.id), row = cell.parentNode.sectionRowIndex, column = cell.cellIndex - 1;
    const note = step.querySelector("p .note")?.textContent || "", head = Number(table.parentNode.dataset.head);
    const found = why(Number(walk), stage, head, row, column, cell, section.dataset, note);
    const symbol = step.querySelector("h3 var").textContent, at = table.tHead.rows[0].cells[column + 1].textContent;
    const place = `${symbol}[${cell.parentNode.cells[0].textContent}, ${at}]`, number = text(cell);
    const name = table.caption ? fill(words.CELL_OF_TABLE, { place, table: table.caption.textContent }) : place;
    const apart = typeof found?.apart === "number", sentence = apart ? words.CELL_IS_APART : words.CELL_IS;
    const parts = { cell: name, sum: found?.sum, apart: apart && short(found.apart), number: number + (apart && note ? `, ${note}` : "") };
    said.textContent = fill(found ? sentence : words.CELL_IS_GIVEN, parts);
    (found ? found.lit : []).forEach((each) => each.classList.add("source"));
    cell.classList.add("asked");
    cell.closest("article").append(said);
  }

  window.attention.explain = () => { const cell = document.querySelector(".asked"); if (cell) show(cell); };

  function enter(cell) {
    if (!cell) return;
    cell.closest("table").querySelectorAll("td[tabindex='0']").forEach((each) => { each.tabIndex = -1; });
    cell.tabIndex = 0;
    cell.focus();
  }

  const explained = (element) => element.closest?.(".why-table tbody td");
  OWN.forEach((stage) => document.querySelectorAll(`.walk [id$="-${stage}"] table`).forEach((table) => {
    table.classList.add("why-table");
    table.setAttribute("role", "grid");
    if (!table.caption) table.setAttribute("aria-label", stage);
    table.querySelector("tbody td").tabIndex = 0;
  }));
  document.querySelectorAll(".flow figcaption").forEach((caption) => {
    const hint = document.createElement("span");
    hint.className = "touch"; // not on paper
    hint.textContent = ` ${words.CLICK_A_NUMBER}`;
    caption.append(hint);
  });
  document.addEventListener("click", (event) => enter(explained(event.target)));
  document.addEventListener("focusin", (event) => { const cell = explained(event.target); if (cell) show(cell); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { clear(); return; }
    const cell = explained(event.target), rows = cell && cell.closest("tbody").rows;
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [0, 0];
    if (!cell || !(down || right)) return;
    event.preventDefault();
    const next = rows[cell.parentNode.sectionRowIndex + down]?.cells[cell.cellIndex + right];
    if (next && next.tagName === "TD") enter(next);
  });
})();
