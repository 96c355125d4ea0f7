(() => {
  // Update the comparison after a change; mark the run's numbers that this page cannot compute.
  const { live, data, element: create } = window.attention;
  if (!live?.show) return;
  const { rows, beside, restore, shownIn } = live, steps = (selector) => Array.from(document.querySelectorAll(selector));
  const computed = rows.filter((row) => row.letter), against = computed.find((row) => row.variant === live.against), FOLLOWING = ["max_diff", "cosine", "entropy", "effective_keys", "largest_weight", "row_sum_error"];
  const ends = ({ output, weights }) => output || weights || [[[]]];
  const shape = (matrices) => `${matrices.length} ${matrices[0].length} ${matrices[0][0].length}`;
  const size = (numbers) => numbers.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const total = (numbers) => numbers.reduce((sum, value) => sum + value, 0);

  /** Return the largest difference; NaN in only one of the two counts as infinite. */
  const difference = (one, other) => one.reduce((most, value, place) => {
    const gap = Object.is(value, other[place]) ? 0 : Math.abs(value - other[place]);
    return Math.max(most, Number.isNaN(gap) ? Infinity : gap);
  }, 0);

  function cosine(one, other) {
    const length = (numbers) => Math.sqrt(total(numbers.map((value) => value * value))), lengths = length(one) * length(other);
    return lengths ? total(one.map((value, place) => value * other[place])) / lengths : Number(!size(one) && !size(other));
  }

  const entropy = (line) => -total(line.map((weight) => (weight > 0 ? weight * Math.log(weight) : 0)));

  /** Return how weights spread over keys, as means over heads and queries. */
  function spreadOf({ spread, even }, weights) {
    if (!spread || !weights) return {};
    const lines = weights.flat(), sums = lines.map(total), seen = lines.filter((line) => line.some(Boolean));
    const mean = (measure) => (seen.length ? total(seen.map(measure)) / seen.length : NaN);
    const shares = lines.every((line) => line.every((weight) => weight >= 0)) && sums.every((sum) => !sum || Math.abs(sum - 1) <= 0.02);
    return {
      largest_weight: mean((line) => Math.max(0, ...line)),
      ...(spread === "whole" && { row_sum_error: Math.max(0, ...sums.filter((sum) => sum !== 0).map((sum) => Math.abs(sum - 1))) }),
      ...(even && (shares || spread === "pieces") && { entropy: mean(entropy), effective_keys: mean((line) => Math.exp(entropy(line))) }),
    };
  }

  /** Return the numbers of a row, and the magnitude relative to which a difference is rounding. */
  function numbersOf(row, stagesOf) {
    const stages = stagesOf(row.plan), first = against.plan && ends(stagesOf(against.plan)), mine = ends(stages);
    const fits = first && shape(mine) === shape(first), [one, other] = [mine.flat(2), fits ? first.flat(2) : []];
    const apart = fits ? { max_diff: difference(one, other), cosine: cosine(one, other) } : { max_diff: NaN, cosine: NaN };
    return { ...apart, entropy: NaN, effective_keys: NaN, largest_weight: NaN, row_sum_error: NaN, ...spreadOf(row, stages.weights), size: size([...one, ...other]) };
  }

  /** Return the distance from a number to the next larger float64. */
  function spacing(value) {
    const view = new DataView(new ArrayBuffer(8));
    view.setFloat64(0, value);
    view.setBigInt64(0, view.getBigInt64(0) + 1n);
    return view.getFloat64(0) - value;
  }

  /** Whether two outputs are the same function: they differ by at most 256 ulp of the largest number. */
  function alike(mine, first) {
    if (shape(mine) !== shape(first)) return false;
    const [one, other] = [mine.flat(2), first.flat(2)], real = one.map(Number.isFinite);
    if (!one.every((value, place) => (real[place] ? Number.isFinite(other[place]) : Object.is(value, other[place])))) return false;
    const known = (numbers) => numbers.filter((_, place) => real[place]);
    return difference(known(one), known(other)) <= 256 * spacing(size(known(other)));
  }

  const letter = (place) => (place >= 26 ? letter(Math.floor(place / 26) - 1) : "") + String.fromCharCode(65 + (place % 26));
  function lettersBy(stagesOf) {
    const leaders = [];
    return rows.map(({ plan, letter: own }) => {
      if (!own) return "";
      let place = leaders.findIndex((leader) => leader === plan || alike(ends(stagesOf(plan)), ends(stagesOf(leader))));
      if (place < 0) place = leaders.push(plan) - 1;
      return letter(place);
    });
  }

  /** Format a number briefly, like the tables of the run. */
  function brief(value) {
    if (Number.isNaN(value)) return "-";
    if (!value || !Number.isFinite(value)) return value ? (value > 0 ? "inf" : "−inf") : "0";
    if (Math.abs(value) >= 1e-3 && Math.abs(value) < 1e5) return value.toFixed(Math.abs(value) < 10 ? 4 : 1).replace("-", "−");
    return value.toExponential(1).replace(/e([+-])(\d)$/, "e$10$2").replace(/^-/, "−");
  }
  const slack = (text) => (/e/.test(text) ? 0.51 * 10 ** (text.split("e")[1] - 1) : 0.51 * 10 ** -(text.split(".")[1] || "").length);
  const tells = (text, value, rounding) => text === brief(value) || Math.abs(Number(text.replace("−", "-")) - value) <= Math.max(slack(text), rounding);

  // Find the cells for which this page computes the same number as the run.
  const whole = computed.every(({ plan }) => plan), letters = whole ? lettersBy(live.before) : [];
  const known = letters.length && rows.every((row, place) => row.letter === letters[place]);
  const own = rows.map((row) => row.plan && numbersOf(row, live.before));
  const spots = [], still = new Set(), named = new Set();
  function add(element, column, lines, head) {
    const follows = column === "same_as" ? known : FOLLOWING.includes(column) && lines.every((line) => own[line] && tells(shownIn(element), own[line][column], column === "max_diff" ? 1e-12 * own[line].size : 1e-12));
    if (follows) spots.push({ element, column, lines });
    else { still.add(element); named.add(head); }
  }
  for (const head of steps("#comparison th[data-column]")) {
    Array.from(head.closest("table").tBodies[0].rows, (line, place) => rows[place].letter && add(line.cells[head.cellIndex], head.dataset.column, [place], head.textContent));
  }
  const every = rows.map((_, place) => place).filter((place) => rows[place].letter);
  steps("#comparison .note [data-column]").forEach((value) => add(value, value.dataset.column, every, value.dataset.column.replaceAll("_", " ")));

  // Mark everything that keeps the run's numbers.
  const sections = steps("#published, #steps, [id^='check-'], #figures").map((section) => [section, section.querySelector("h2")]);
  const dead = live.sections.filter((_, place) => !live.moving[place]).map((section) => [section, section.querySelector("h2")]);
  const stays = (variant) => !rows.find((row) => row.variant === variant)?.plan;
  const captions = () => steps("#overview .line").filter((_, walk) => stays(data.walks[walk].variant));
  const sentences = steps("header .lead").filter((line) => line.textContent.trim());
  live.still = ["the sentences at the top", ...named, ...sections.map(([, title]) => title.textContent)];
  function mark(element, on, place = (label) => element.prepend(label, " ")) {
    const label = element.querySelector(".of-run");
    element.classList.toggle("still", on);
    if (on && !label) place(create("span", { class: "note of-run" }, "From the run, before the change."));
    if (!on && label) { if (label.nextSibling?.data === " ") label.nextSibling.remove(); label.remove(); }
  }
  function markAll(on) {
    still.forEach((element) => element.classList.toggle("still", on));
    sentences.forEach((line) => line.classList.toggle("still", on));
    sentences.slice(0, 1).forEach((line) => mark(line, on));
    [...sections, ...dead].forEach(([section, title]) => mark(section, on, (label) => title.after(label)));
    captions().forEach((line) => mark(line, on, (label) => line.append(" ", label)));
    markChosen();
  }

  /** Mark the large view if it keeps the run's numbers. */
  function markChosen() {
    const { state, choices } = window.attention, chosen = state ? [choices[state.show], choices[state.with]].filter(Boolean) : [];
    const told = document.getElementById("told");
    if (told) mark(told, live.changed().length > 0 && chosen.some(({ walk }) => stays(data.walks[walk].variant)));
  }
  window.attention.chosen = markChosen;

  function follow() {
    for (const head of steps("#comparison th[data-column]")) head.style.minWidth ||= `${head.getBoundingClientRect().width}px`; // the table keeps its width
    const numbers = rows.map((row) => row.plan && numbersOf(row, live.stages)), letters = known && lettersBy(live.stages);
    const text = (line, column) => {
      if (column === "same_as") return letters[line];
      const [value, before] = [numbers[line][column], own[line][column]], size = column === "max_diff" ? Math.max(numbers[line].size, own[line].size) : 1;
      return Object.is(value, before) || Math.abs(value - before) <= 1e-12 * size ? null : brief(value);
    };
    for (const { element, column, lines } of spots) {
      const old = shownIn(element), texts = lines.map((line) => text(line, column) ?? old);
      if (texts.every((each) => each === old)) restore(element);
      else beside(element, new Set(texts).size === 1 ? texts[0] : lines.map((line, place) => `${rows[line].variant} ${texts[place]}`).join(", "));
    }
    markAll(live.changed().length > 0);
  }
  Object.assign(live, { numbers: () => rows.map((row) => row.plan && numbersOf(row, live.stages)), letters: () => known && lettersBy(live.stages) });
  live.after.push(follow);
})();
