(() => {
  // A guided tour of the default run: five steps, each of which changes one thing, with the numbers of this run.
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
  const row = stages[0].weights[0][0], seconds = stages[2].weights.map((head) => head[0]);
  const query = data.tokens[0], key = data.keys[largest(row)], heads = whole.heads[0];
  const told = [
    ["no scale", `Without scaling (not a row of this run), the query of ${query} meets every key, with scores from ${two(Math.min(...stages[0].scores[0][0]))} to ${two(Math.max(...stages[0].scores[0][0]))}, and their softmax gives ${key} ${two(Math.max(...row))}. The weights have a mean entropy of ${entropy(stages[0])} nats, where uniform weights would have ${two(Math.log(count))}.`],
    ["scale", `The scores are divided by the square root of d = ${width}, and ${query} gives ${key} ${two(stages[1].weights[0][0][largest(row)])} instead of ${two(Math.max(...row))}. The mean entropy goes from ${entropy(stages[0])} to ${entropy(stages[1])} nats.`],
    [`${heads} heads`, `The ${width} columns of Q, K and V are split into ${heads} heads of ${width / heads}, and each head attends separately. For ${query}, ${seconds.slice(0, 2).map((line, head) => `head ${head + 1} gives the most to ${data.keys[largest(line)]} (${two(Math.max(...line))})`).join(", ")}.`],
    ["a mask", `A causal mask hides the keys that come later, so “${query}” attends only to itself. This changes the output by up to ${move(3)}.`],
    ["W_o", `Without the mask again, W_o mixes the concatenated heads into a vector for each token: this changes the output by up to ${move(4)}. This is ${data.walks[last].variant}, the last variant of this run.`],
  ];

  const box = element("aside", { class: "guide touch", "aria-label": "A guided tour" }), title = element("h3"), said = element("p", { "aria-live": "polite" });
  const [back, next, leave, again] = ["Back", "Next", "Leave the tour", "A guided tour"].map((text) => element("button", { type: "button" }, text)), buttons = element("p"), into = element("p", { class: "touch" });
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
    return weights.map((_, head) => ({ walk: last, head, panel, name: weights.length > 1 ? `head ${head + 1}` : told[step][0] }));
  }
  function outputs(place) {
    const made = element("figure"), [rows] = stages[place].output, largest = Math.max(...[stages[2], stages[4]].flatMap(({ output }) => output.flat(2)).map(Math.abs));
    made.append(element("figcaption", {}, place === 2 ? "output, the heads side by side" : "output, mixed by W_o"), heat("", rows.flat(), data.tokens, rows[0].map((_, column) => String(column + 1)), largest, { rows: true, digits: 3 }));
    return made;
  }
  function show() {
    const reading = open && !printing;
    box.hidden = !reading;
    into.hidden = open;
    section.classList.toggle("guided", reading);
    title.textContent = `A guided tour, ${step + 1} of ${told.length}: ${told[step][0]}`;
    said.textContent = told[step][1];
    back.disabled = step === 0;
    next.hidden = step === told.length - 1;
    explore.guide(reading ? parts() : null, step === told.length - 1 ? "A row is a token, a column a number of its output: blue is above 0, brown below." : "A row is a query, a column a key. The stronger a colour, the larger the weight: no colour is 0, the full colour is 1." + (step > 2 ? " Grey cells are masked." : ""));
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
