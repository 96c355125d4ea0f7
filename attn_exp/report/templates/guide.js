(() => {
  // A first reading of the default run: five steps, each of which changes one thing, with the numbers of this run.
  const { data, live, element, heat, explore } = window.attention;
  const last = live ? data.walks.findIndex((_, walk) => live.plans[walk]?.mixed && live.plans[walk].heads[0] > 1) : -1;
  const whole = live?.plans[last], width = live?.own.W_q?.[0].length;
  if (!whole || !explore || data.tokens.length < 2 || whole.allowed || whole.bias || whole.caps.length || whole.turns.length || whole.normalizer !== "softmax") return;

  const count = data.tokens.length, one = { ...whole, heads: [1, 1, 1], mixed: false }, causal = data.tokens.flatMap((_, row) => data.keys.map((_, key) => (key <= row ? "1" : "0"))).join("");
  const plans = [{ ...one, c: 1 }, { ...one, c: 1 / Math.sqrt(width) }, { ...whole, mixed: false }, { ...whole, mixed: false, allowed: causal }, whole];
  const stages = plans.map((plan) => live.compute(plan, live.own));
  const largest = (row) => row.indexOf(Math.max(...row)), two = (number) => number.toFixed(2).replace("-", "−");
  const entropy = ({ weights }) => two(weights.flat().reduce((sum, row) => sum - row.reduce((part, weight) => part + (weight > 0 ? weight * Math.log(weight) : 0), 0), 0) / weights.flat().length);
  const move = (step) => two(Math.max(...stages[step].output.flat(2).map((value, place) => Math.abs(value - stages[2].output.flat(2)[place])))); // the heads alone
  const row = stages[0].weights[0][0], key = largest(row), seconds = stages[2].weights.map((head) => head[0]);
  const known = {
    query: data.tokens[0], key: data.keys[key], weight: two(row[key]), low: two(Math.min(...stages[0].scores[0][0])), high: two(Math.max(...stages[0].scores[0][0])),
    entropy: entropy(stages[0]), even: two(Math.log(count)), size: width, scaled: two(stages[1].weights[0][0][key]), after: entropy(stages[1]),
    heads: whole.heads[0], part: width / whole.heads[0], one: data.keys[largest(seconds[0])], first: two(Math.max(...seconds[0])), other: data.keys[largest(seconds[1])], second: two(Math.max(...seconds[1])),
    masked: move(3), mixed: move(4), variant: data.walks[last].variant,
  };
  const told = [[words.STEP_NO_SCALE, words.NO_SCALE], [words.STEP_SCALE, words.SCALED], [words.STEP_HEADS, words.HEADS_PART], [words.STEP_MASK, words.MASK_HIDES], [words.STEP_MIX, words.MIXES]];

  const box = element("aside", { class: "guide touch", "aria-label": words.FIRST_READING }), title = element("h3"), said = element("p", { "aria-live": "polite" });
  const [back, next, leave, again] = [words.BACK, words.NEXT, words.LEAVE, words.FIRST_READING].map((text) => element("button", { type: "button" }, text)), buttons = element("p"), into = element("p", { class: "touch" });
  const section = document.getElementById("weights"), paper = matchMedia("print");
  let step = 0, open = !location.hash, printing = paper.matches;
  buttons.append(back, " ", next, " ", leave);
  box.append(title, said, buttons);
  into.append(again);
  document.getElementById("overview").before(box, into);

  /** What a step shows: the weights of each head, and where they are mixed the output before and after. */
  function parts() {
    const { weights } = stages[step], whole = Float64Array.from(weights.flat(2));
    if (step === told.length - 1) return [2, step].map((place) => ({ made: () => outputs(place) }));
    const panel = { weights: whole, shape: [weights.length, count, data.keys.length], closed: (place) => step > 2 && place % data.keys.length > Math.floor(place / data.keys.length) };
    return weights.map((_, head) => ({ walk: last, head, panel, name: weights.length > 1 ? fill(words.HEAD, { number: head + 1 }) : fill(told[step][0], known) }));
  }
  function outputs(place) {
    const made = element("figure"), [rows] = stages[place].output, largest = Math.max(...[stages[2], stages[4]].flatMap(({ output }) => output.flat(2)).map(Math.abs));
    made.append(element("figcaption", {}, place === 2 ? words.BEFORE_MIXING : words.AFTER_MIXING), heat("", rows.flat(), data.tokens, rows[0].map((_, column) => String(column + 1)), largest, { rows: true, digits: 3 }));
    return made;
  }
  function show() {
    const reading = open && !printing;
    box.hidden = !reading;
    into.hidden = open;
    section.classList.toggle("guided", reading);
    title.textContent = fill(words.STEP_OF, { step: step + 1, of: told.length, name: fill(told[step][0], known) });
    said.textContent = fill(told[step][1], known);
    back.disabled = step === 0;
    next.hidden = step === told.length - 1;
    explore.guide(reading ? parts() : null, step === told.length - 1 ? words.OUTPUTS_OF_READING : words.SCALE_OF_READING + (step > 2 ? ` ${words.GREY}` : ""));
  }
  function end() {
    if (!open) return;
    open = false;
    show();
  }
  const print = (now) => { printing = now; if (open) show(); };
  back.addEventListener("click", () => { step -= 1; show(); });
  next.addEventListener("click", () => { step += 1; show(); if (next.hidden) leave.focus(); });
  leave.addEventListener("click", () => { end(); again.focus(); });
  again.addEventListener("click", () => { [open, step] = [true, 0]; show(); next.focus(); });
  explore.left = end;
  paper.addEventListener("change", () => print(paper.matches));
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  live.after.push(() => { again.disabled = live.changed().length > 0; end(); }); // its numbers are those of the run
  show();
})();
