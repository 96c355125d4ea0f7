(() => {
  // Explain how a cell of a walk was computed, with the numbers that the tables show.
  const OWN = ["q", "k", "v", "scores", "logits", "capped", "masked", "weights", "context", "output"];
  const said = document.createElement("p");
  said.className = "why touch";
  said.setAttribute("role", "status");

  const { steps, beside, enter } = window.attention, { beginOf } = steps;
  const stepAt = (walk, stage) => steps.stepOf(walk - 1, stage);
  const tableAt = (walk, stage, head) => steps.table(walk - 1, stage, head)?.querySelector("table");
  const cellAt = (walk, stage, head, row, column) => { const table = tableAt(walk, stage, head), [top, left] = beginOf(table); return table?.tBodies[0].rows[row - top]?.cells[column - left + 1]; };
  const sizes = (walk, stage) => stepAt(walk, stage).dataset.shape.split(" ").map(Number);
  const sizesShown = (walk, stage) => window.attention.data.walks[walk - 1].steps[stage].shape;
  const text = (cell) => (cell.querySelector("ins") || cell).textContent; // the new number of a changed cell
  const value = (cell) => Number(text(cell).replace("−", "-").replace("∞", "Infinity"));
  /** Whether a cell shows all digits of its number, which comes from the run or was typed. */
  const isWhole = (cell) => (cell.querySelector("ins") ? "whole" in cell.querySelector("ins").dataset : "whole" in cell.closest(".step").dataset);
  const half = (cell) => (isWhole(cell) ? 0 : 0.5 * 10 ** -(text(cell).split(".")[1] || "").length);
  const short = (number) => (Math.abs(number) >= 1e4 ? number.toExponential(2) : number.toFixed(4)).replace("-", "−");
  const planOf = (walk) => window.attention.live?.plans[walk - 1];
  const lastOf = (walk, before) => OWN.slice(3, OWN.indexOf(before)).reverse().find((stage) => stepAt(walk, stage));

  const inBrackets = (number, shown) => (number < 0 ? `(${shown})` : shown);
  const joined = (terms) => terms.join(" + ").replaceAll("+ −", "− ");
  const unsigned = (shown) => (/^−?0\.0000$/.test(shown) ? "0" : shown);
  const ROUNDING = 1e-9; // relative tolerance of sums, where all digits are shown

  /** Write a sum of `count` products of cells, plus the cell `added`; `marks` are added to the first factors. */
  function product(cell, pairs, count, added, marks = []) {
    if (!pairs.length || pairs.some(([one, other]) => !one || !other)) return null;
    let total = added ? value(added) : 0, slack = half(cell) + (added ? half(added) : 0);
    const factor = (one, place) => value(one) + (marks[place] || 0), about = (one) => half(one) + (marks.length ? 0.00005 : 0);
    pairs.forEach(([one, other], place) => {
      total += factor(one, place) * value(other);
      slack += Math.abs(factor(one, place)) * half(other) + Math.abs(value(other)) * about(one) + about(one) * half(other) + ROUNDING * Math.abs(factor(one, place) * value(other));
    });
    const first = (one, place) => (marks.length ? `(${joined([text(one), short(marks[place])])})` : text(one));
    const terms = pairs.map(([one, other], place) => `${first(one, place)} × ${inBrackets(value(other), text(other))}`);
    if (added) terms.push(text(added));
    if (pairs.length < count) terms.push(`${short(value(cell) - total)} from ${count - pairs.length} terms that are not shown`);
    const apart = pairs.length >= count && Math.abs(total - value(cell)) > slack;
    return { sum: joined(terms), lit: [...pairs.flat(), ...(added ? [added] : [])], apart: apart && total };
  }

  const most = window.attention.data.tokens.length > 8 ? 4 : 16;
  const range = (count, make, all = count <= most) => Array.from({ length: Math.min(count, all ? 16 : 4) }, (_, place) => make(place)); // as many as tables show

  function projected(walk, stage, head, row, column, cell, facts) {
    const source = stage !== "q" && stepAt(walk, "memory") ? "memory" : "x";
    const whole = sizes(walk, stage), width = whole.at(-1);
    if (!stepAt(walk, source) || sizes(walk, `W_${stage}`)[1] !== whole[0] * width) return null; // given, or a mean of heads
    const apart = (name) => sizesShown(walk, name)[0] > 1, at = (name, line) => (apart(name) ? cellAt(walk, name, head, line, column) : cellAt(walk, name, 0, line, head * width + column));
    const many = sizes(walk, source)[1], line = row + (stage === "q" ? Number(facts.past) : 0);
    const pairs = range(many, (inner) => [cellAt(walk, source, 0, line, inner), at(`W_${stage}`, inner)]);
    return product(cell, pairs, many, stepAt(walk, `b_${stage}`) && at(`b_${stage}`, 0), planOf(walk)?.marks[source]?.[line]);
  }

  /** Return what turns a row of logits into weights: the cells, the visible ones, their numbers, the exact weights, and whether there are more terms. */
  function lineOf(walk, head, row, facts) {
    const before = lastOf(walk, "weights"), table = before && tableAt(walk, before, head), [top, first] = beginOf(table), line = table?.tBodies[0].rows[row - top];
    if (!line) return null;
    const cells = [...line.cells].slice(1), panel = window.attention.panels[facts.panel], left = sizes(walk, before).at(-1) > cells.length;
    const start = panel?.weights && (head * panel.shape[1] + row) * panel.shape[2] + first;
    /** Show a logit with more digits than its table has if these are too few for an exponential. */
    const fine = (cell, key) => {
      const exact = panel?.scores && panel.own * panel.scores[start + key] + (panel.rest ? panel.rest[start + key] : 0);
      return half(cell) > 5e-4 && Math.abs(exact - value(cell)) <= 1.001 * half(cell) ? exact.toFixed(4).replace("-", "−") : text(cell);
    };
    const shown = cells.map(fine), numbers = shown.map((each) => Number(each.replace("−", "-").replace("∞", "Infinity")));
    const seen = cells.map((_, key) => key).filter((key) => numbers[key] > -Infinity);
    const weight = (key) => (panel?.weights ? panel.weights[start + key] : value(cellAt(walk, "weights", head, row, first + key)));
    const extras = planOf(walk)?.extra, extra = extras?.[head % extras.length];
    return { cells, shown, numbers, seen, weight, left, extra, first, more: left || Boolean(facts.extra) };
  }

  function softened(walk, head, row, column, cell, facts) {
    const line = lineOf(walk, head, row, facts);
    if (!line) return null;
    const { cells: lit, shown, numbers, seen, left } = line;
    column -= line.first;
    const own = numbers[column];
    if (own === undefined) return null; // the page does not contain its logit
    if (!seen.length && !left && value(cell) !== 0) return { why: `convention=${facts.convention} gives this to a query that sees no key`, lit };
    if (own === -Infinity && seen.length && facts.normalizer !== "sum") return { why: "this query may not see this key", lit: [lit[column]] };
    if (facts.normalizer === "sigmoid") return { sum: `1 / (1 + exp(−(${shown[column]})))`, lit: [lit[column]] };
    if (!seen.length && !left) return { why: "this query sees no key, and 0 / 0 counts as 0", lit };
    if (facts.normalizer === "sparsemax") return lowered(line, column);
    return shared(line, column, facts.normalizer === "softmax");
  }

  /** Write a weight as a share of a sum of exponentials or of logits. */
  function shared({ cells: lit, shown, numbers, seen, weight, left, more, extra }, column, powers) {
    const most = Math.max(...seen.map((key) => numbers[key])), less = powers && most > 30 ? ` − ${shown[numbers.indexOf(most)]}` : "";
    const part = (key) => (powers ? Math.exp(numbers[key] - (less ? most : 0)) : Math.max(numbers[key], -Number.MAX_VALUE));
    const named = (key) => (powers ? `exp(${shown[key]}${less})` : shown[key]);
    const total = seen.reduce((sum, key) => sum + part(key), 0), mine = numbers[column] === -Infinity ? 0 : part(column);
    const sharing = more && seen.find((key) => weight(key) !== 0), known = !left && extra?.reduce((sum, logit) => sum + (powers ? Math.exp(logit - (less ? most : 0)) : logit), 0);
    const rest = typeof known === "number" ? known : sharing === undefined || !more ? 0 : part(sharing) / weight(sharing) - total;
    const further = Math.abs(rest) > 1e-9 * Math.abs(total) ? rest : 0, above = mine === 0 && !powers ? "0" : named(column);
    if (total + further === 0) return { sum: `${above} / 0, which counts as 0`, lit };
    const others = `${short(further)} of ${left ? "keys that are not shown" : "other terms"}`;
    return { sum: `${above} / (${joined([...seen.map(named), ...(further ? [others] : [])])}) = ${short(mine)} / ${inBrackets(total + further, short(total + further))}`, lit };
  }

  /** Write a weight of sparsemax: the logit minus the threshold for which the row sums to 1, or 0. */
  function lowered({ cells: lit, shown, numbers, seen, weight, more }, column) {
    const kept = seen.filter((key) => weight(key) > 0), [first] = kept;
    if (first === undefined) return null;
    const level = more ? numbers[first] - weight(first) : (kept.reduce((sum, key) => sum + numbers[key], 0) - 1) / kept.length;
    const above = (number) => `max(0, ${shown[column]} − ${number})`;
    const long = above(`(${joined(kept.map((key) => shown[key]))} − 1) / ${kept.length}`);
    return { sum: `${more ? "" : `${long} = `}${above(inBrackets(level, short(level)))}`, lit };
  }

  /** Write an additive score, if the page has its vector. */
  function summed(cell, pairs, many, vector) {
    if (!vector || pairs.length < many || pairs.some((pair) => pair.some((each) => !each))) return null;
    const term = ([one, other], place) => `${short(vector[place])} × tanh(${joined([text(one), text(other)])})`;
    return { sum: joined(pairs.map(term)), lit: pairs.flat() };
  }

  function why(walk, stage, head, row, column, cell, facts, note) {
    const key = Math.floor(head / Number(facts.share));
    if ((facts.wrong || "").split(" ").includes(stage)) return { why: "this stage departs from the definition, as explained above", lit: [] };
    if (["q", "k", "v"].includes(stage)) return projected(walk, stage, head, row, column, cell, facts);
    if (stage === "scores") {
      const many = sizes(walk, "q").at(-1);
      const pairs = range(many, (inner) => [cellAt(walk, "q", head, row, inner), cellAt(walk, "k", key, column, inner)]);
      return facts.pair ? summed(cell, pairs, many, planOf(walk)?.pair?.[head]) : product(cell, pairs, many);
    }
    if (stage === "weights") return softened(walk, head, row, column, cell, facts);
    if (stage === "context") {
      if (!stepAt(walk, "weights")) return null;
      const many = sizes(walk, "weights").at(-1), [, first] = beginOf(tableAt(walk, "weights", head));
      return product(cell, range(many, (place) => first + place, true).map((inner) => [cellAt(walk, "weights", head, row, inner), cellAt(walk, "v", key, inner, column)]), many);
    }
    if (stage === "output") {
      if (!stepAt(walk, "context")) return null;
      const [heads, , width] = sizes(walk, "context"), from = (place) => cellAt(walk, "context", Math.floor(place / width), row, place % width);
      if (facts.mixed) { // only the terms of the shown head
        const byHead = sizesShown(walk, "W_o")[0] > 1, start = byHead ? steps.head() * width : 0;
        const terms = range(byHead ? width : heads * width, (inner) => [from(start + inner), cellAt(walk, "W_o", byHead ? steps.head() : 0, start + inner, column)]);
        return product(cell, terms, heads * width, cellAt(walk, "b_o", 0, 0, column));
      }
      const own = from(column);
      return own && { sum: heads > 1 ? `C of head ${Math.floor(column / width) + 1}` : "C", lit: [own] };
    }
    const before = lastOf(walk, stage), own = before && cellAt(walk, before, head, row, column);
    if (!own) return null;
    if (stage === "logits") {
      const scaled = Number(facts.c) * value(own), off = Math.abs(scaled - value(cell)) > half(cell) + Math.abs(facts.c) * half(own) + ROUNDING * Math.abs(scaled) && scaled;
      return { sum: `${Number(Number(facts.c).toPrecision(6))} × ${inBrackets(value(own), text(own))}`, lit: [own], apart: off };
    }
    if (stage === "capped") {
      const bent = facts.caps.split(" ").filter(Boolean).reduce((inner, cap) => `${cap} × tanh(${inner} / ${cap})`, text(own));
      return { sum: facts.caps ? bent : `${note} of ${text(own)}`, lit: [own] };
    }
    if (value(cell) === -Infinity) return { why: "this query may not see this key", lit: [own] };
    return { sum: joined([text(own), biasAt(walk, head, row, column) ?? short(value(cell) - value(own))].map(unsigned)), lit: [own] };
  }

  /** Return the bias that rules add to a logit, if the page has it. */
  function biasAt(walk, head, row, column) {
    const bias = planOf(walk)?.bias, [rows, keys] = sizes(walk, "masked").slice(-2);
    return bias && short(bias[((bias.length > rows * keys ? head * rows : 0) + row) * keys + column]);
  }

  function clear() {
    document.querySelectorAll(".source, .asked, .needed").forEach((each) => each.classList.remove("source", "asked", "needed"));
    said.remove();
  }

  function show(cell) {
    clear();
    const step = cell.closest(".step"), table = cell.closest("table"), section = cell.closest(".walk");
    const [, walk, stage] = /^walk-(\d+)-(.*)$/.exec(step.id), [top, left] = beginOf(table), row = top + cell.parentNode.sectionRowIndex, column = left + cell.cellIndex - 1;
    const note = step.querySelector("p .note")?.textContent || "", head = Number(table.parentNode.dataset.head);
    const found = why(Number(walk), stage, head, row, column, cell, section.dataset, note);
    const symbol = step.querySelector("h3 var").textContent, at = table.tHead.rows[0].cells[cell.cellIndex].textContent;
    const place = `${symbol}[${cell.parentNode.cells[0].textContent}, ${at}]`, number = text(cell);
    const name = table.caption ? `${place} of ${table.caption.textContent}` : place;
    if (!found) said.textContent = `${name} = ${number}; its inputs are not shown here.`;
    else if (typeof found.apart === "number") said.textContent = `${name} = ${found.sum} = ${short(found.apart)}; the table has ${number}${note && `, ${note}`}`;
    else said.textContent = found.why ? `${name} = ${number}, because ${found.why}` : `${name} = ${found.sum} = ${number}`;
    for (const each of found ? found.lit : []) {
      each.classList.add("source");
      each.closest(".other")?.classList.add("needed"); // a table of another head
    }
    cell.classList.add("asked");
    step.append(said);
    said.scrollIntoView({ block: "nearest" });
  }

  window.attention.explain = () => { const cell = document.querySelector(".asked"); if (cell) show(cell); };

  const explained = (element) => element.closest?.(".why-table tbody td");
  function asked(table, step) {
    if (!table || !OWN.includes(/^walk-\d+-(.*)$/.exec(step.id)[1])) return;
    table.classList.add("why-table");
    table.setAttribute("role", "grid");
    if (!table.caption) table.setAttribute("aria-label", step.id.replace(/^walk-\d+-/, ""));
    table.querySelector("tbody td").tabIndex = 0;
  }
  document.querySelectorAll(".walk .step table").forEach((table) => asked(table, table.closest(".step")));
  steps.made.push(asked);
  document.querySelectorAll(".flow figcaption").forEach((caption) => {
    const hint = document.createElement("span");
    hint.className = "touch"; // not on paper
    hint.textContent = " Click a number to see how it was computed; the arrow keys move to its neighbours, Escape closes.";
    caption.append(hint);
  });
  document.addEventListener("click", (event) => enter(explained(event.target)));
  document.addEventListener("focusin", (event) => { const cell = explained(event.target); if (cell) show(cell); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { clear(); return; }
    const cell = explained(event.target), next = cell && beside(cell, event.key);
    if (!next) return;
    event.preventDefault();
    enter(next);
  });
})();
