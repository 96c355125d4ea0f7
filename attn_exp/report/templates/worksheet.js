(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const half = 0.5 * 10 ** -data.digits * (1 + 1e-9);
  const inputs = Array.from(document.querySelectorAll(".box input"));
  const stageOf = (input) => input.closest(".box").dataset.stage;
  const place = (input) => {
    const [row, column] = [Number(input.dataset.row), Number(input.dataset.column)];
    return [Number(input.dataset.head), ...(data.transposed ? [column, row] : [row, column])];
  };
  const crossed = data.hides ? { masked: -Infinity, weights: 0 } : {}; // what a cross stands for
  const number = (input) => {
    const plain = input.value.replace(/\s/g, "").replace(/^[−–]/, "-").replace(",", ".").replace(/∞|infinity|oo$/i, "inf").toLowerCase();
    if (/^[x×✗]$/.test(plain)) return crossed[stageOf(input)] ?? NaN;
    const [, over, under] = /^([-+]?\d{1,9})\s*\/\s*([1-9]\d{0,8})$/.exec(plain) || [];
    if (under) return Number(over) / Number(under);
    if (/^[-+]?inf$/.test(plain)) return plain[0] === "-" ? -Infinity : Infinity;
    return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d{1,3})?$/.test(plain) ? Number(plain) : NaN;
  };
  const transposed = (matrix) => matrix[0].map((_, column) => matrix.map((row) => row[column]));
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
  const weighed = NORMALIZERS[data.normalizer];
  const plus = (logit, added) => (added === null ? -Infinity : logit + added);

  /** Compute a stage from the ones before it, with typed numbers in place of the right ones. */
  function computed(stage, typed) {
    const value = (name) => overlaid(name, typed);
    const exact = data.exact[stage];
    if ("qkv".includes(stage) || (stage === "weights" && !data.exact.scores)) return exact;
    if (stage === "scores") {
      const [q, k] = [value("q"), value("k")], of = sharing(q.length, k.length);
      return q.map((rows, head) => product(rows, transposed(k[of(head)])));
    }
    if (stage === "logits") return value("scores").map((rows) => rows.map((row) => row.map((score) => score * data.scale)));
    if (stage === "capped") return value("logits").map((rows) => rows.map((row) => row.map((logit) => (data.cap === null ? logit : data.cap * Math.tanh(logit / data.cap)))));
    if (stage === "masked") return value("capped").map((rows, h) => rows.map((row, r) => row.map((logit, c) => (data.added ? plus(logit, data.added[h][r][c]) : logit))));
    if (stage === "weights") return value("masked").map((rows, h) => rows.map((row) => weighed(row, data.extra.slice(h, h + 1))));
    if (stage === "context") {
      const [weights, v] = [value("weights"), value("v")], of = sharing(weights.length, v.length);
      return weights.map((rows, head) => product(rows, v[of(head)]));
    }
    const heads = value("context"), joined = heads[0].map((_, row) => heads.flatMap((rows) => rows[row]));
    const output = data.W_o ? product(joined, data.W_o) : joined;
    return [data.b_o ? output.map((row) => row.map((sum, column) => sum + data.b_o[column])) : output];
  }

  /** Return a stage with the numbers typed into it; blanks get the numbers that follow from the stages before. */
  function overlaid(stage, typed) {
    const mine = typed[stage];
    const rest = computed(stage, typed);
    if (!mine) return rest.map((rows) => rows.map((row) => row.map((value) => (value === null ? -Infinity : value))));
    return rest.map((rows, h) => rows.map((row, r) => row.map((value, c) => (Number.isNaN(mine[h][r][c]) ? (value === null ? -Infinity : value) : mine[h][r][c]))));
  }

  function typedNumbers() {
    const typed = {};
    for (const input of inputs) {
      const stage = stageOf(input), [h, r, c] = place(input);
      typed[stage] ??= data.exact[stage].map((rows) => rows.map((row) => row.map(() => NaN)));
      typed[stage][h][r][c] = input.value.trim() ? number(input) : NaN;
    }
    return typed;
  }

  /** Return how much a cell of a stage can change, to first order, if the `numbers` that `which` selects are rounded. */
  function moves(numbers, which, stage, typed, at, centre) {
    let total = 0;
    numbers.forEach((rows, h) => rows.forEach((row, r) => row.forEach((value, c) => {
      if (!Number.isFinite(value) || !which(h, r, c)) return;
      row[c] = value + half;
      const moved = computed(stage, typed)[at[0]][at[1]][at[2]] - centre;
      row[c] = value;
      if (Number.isFinite(moved)) total += Math.abs(moved);
    })));
    return total;
  }

  /** Return the same for all earlier numbers: those typed, and those that students write down elsewhere. */
  function reach(stage, typed, at, centre) {
    const earlier = data.order.slice(0, data.order.indexOf(stage));
    const blank = (name) => (h, r, c) => !typed[name] || Number.isNaN(typed[name][h][r][c]);
    const beside = [...data.scratch, ...earlier].map((name) => [name, overlaid(name, typed)]);
    return sum(earlier.map((name) => moves(typed[name], () => true, stage, typed, at, centre)))
      + sum(beside.map(([name, numbers]) => moves(numbers, blank(name), stage, { ...typed, [name]: numbers }, at, centre)));
  }

  const near = (value, wanted, room) => value === wanted || (wanted === -Infinity && value <= -1e4) || Math.abs(value - wanted) <= room;
  function judged(stage, at, value, typed) {
    const right = data.exact[stage][at[0]][at[1]][at[2]];
    const wanted = right === null ? -Infinity : right;
    if (near(value, wanted, (data.rooms[stage] ?? 0) * (1 + 1e-9) || half)) return "right";
    if ("qkv".includes(stage)) return "wrong";
    const centre = computed(stage, typed)[at[0]][at[1]][at[2]];
    const room = half + reach(stage, typed, at, centre);
    if (!near(value, centre, room)) return "wrong";
    const clean = data.order.slice(0, data.order.indexOf(stage)).every((name) => inputs.every((input) => stageOf(input) !== name || !input.classList.contains("wrong")));
    return clean ? "right" : "follows";
  }

  /** In an exam, show how much is filled in, and which numbers cannot be read. */
  function filledIn() {
    const typed = inputs.filter((input) => input.value.trim()), bad = typed.filter((input) => Number.isNaN(number(input)));
    for (const input of inputs) {
      input.removeAttribute("aria-invalid");
      input.title = "";
    }
    for (const input of bad) {
      input.setAttribute("aria-invalid", "true");
      input.title = "not a number";
    }
    const unreadable = bad.length ? `; ${bad.length} cannot be read` : "";
    document.getElementById("told").textContent = `${`${typed.length} of ${inputs.length} filled in`}${unreadable}.`;
  }

  function check() {
    if (data.exam) return filledIn();
    const typed = typedNumbers(), counts = { right: 0, follows: 0, wrong: 0 };
    for (const input of inputs) {
      input.classList.remove("right", "follows", "wrong");
      input.removeAttribute("aria-invalid");
      if (!input.value.trim()) continue;
      const value = number(input);
      const state = Number.isNaN(value) ? "wrong" : judged(stageOf(input), place(input), value, typed);
      input.classList.add(state);
      if (state === "wrong") input.setAttribute("aria-invalid", "true");
      const wrong = Number.isNaN(value) ? "not a number" : "wrong";
      input.title = { right: "right", follows: "right given an earlier wrong number", wrong }[state];
      counts[state] += 1;
    }
    const parts = [`${counts.right + counts.follows} of ${inputs.length} right`];
    if (counts.follows) parts.push(`, ${counts.follows} of them from a wrong number`);
    if (counts.wrong) parts.push(`; ${counts.wrong} wrong`);
    document.getElementById("told").textContent = `${parts.join("")}.`;
  }
  inputs.forEach((input) => input.addEventListener("change", check));
  document.addEventListener("keydown", (event) => {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key], input = event.target;
    if (!steps || !inputs.includes(input)) return;
    const row = input.closest("tr"), next = steps[0] < 0 ? row.previousElementSibling : row.nextElementSibling;
    const cell = next && next.querySelectorAll("input")[Number(input.dataset.column)];
    if (cell) { cell.focus(); event.preventDefault(); }
  });

  /** Return answers.csv in the format that the command reads. */
  function csv() {
    const safe = (text) => (/^['=+\-@\t\r]/.test(text) && !/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d{1,3})?$/i.test(text) ? `'${text}` : text);
    const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const lines = [];
    for (const table of document.querySelectorAll(".box table")) {
      lines.push([table.caption.textContent, ...Array.from(table.tHead.rows[0].cells).slice(1).map((cell) => cell.textContent)]);
      for (const row of table.tBodies[0].rows) lines.push([row.cells[0].textContent, ...Array.from(row.querySelectorAll("input"), (input) => input.value.trim())]);
      lines.push([]);
    }
    return lines.map((line) => line.map(safe).map(quoted).join(",")).join("\n") + "\n";
  }
  document.getElementById("save").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
    link.download = data.file;
    link.click();
    URL.revokeObjectURL(link.href);
  });
  globalThis.sheet = { check, csv, inputs };
})();
