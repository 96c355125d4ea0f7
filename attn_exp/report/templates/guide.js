(() => {
  // A first reading of the default run: five steps, each of which changes one thing, with the numbers of this run.
  const { data, live, element, explore, follow } = window.attention;
  const last = !location.hash && live ? data.walks.findIndex((_, walk) => live.plans[walk]?.mixed && live.plans[walk].heads[0] > 1) : -1;
  const whole = live?.plans[last], width = live?.own.W_q?.[0].length;
  if (!whole || !explore || data.tokens.length < 2 || whole.allowed || whole.bias || whole.caps.length || whole.turns.length || whole.normalizer !== "softmax") return;

  const count = data.tokens.length, one = { ...whole, heads: [1, 1, 1], mixed: false }, causal = data.tokens.flatMap((_, row) => data.keys.map((_, key) => (key <= row ? "1" : "0"))).join("");
  const plans = [{ ...one, c: 1 }, { ...one, c: 1 / Math.sqrt(width) }, { ...whole, mixed: false }, { ...whole, mixed: false, allowed: causal }, { ...whole, allowed: causal }];
  const stages = plans.map((plan) => live.compute(plan, live.own));
  const largest = (row) => row.indexOf(Math.max(...row)), two = (number) => number.toFixed(2).replace("-", "−");
  const entropy = ({ weights }) => two(weights.flat().reduce((sum, row) => sum - row.reduce((part, weight) => part + (weight > 0 ? weight * Math.log(weight) : 0), 0), 0) / weights.flat().length);
  const move = (step) => two(Math.max(...stages[step].output.flat(2).map((value, place) => Math.abs(value - stages[step - 1].output.flat(2)[place]))));
  const row = stages[0].weights[0][0], key = largest(row), seconds = stages[2].weights.map((head) => head[0]);
  const known = {
    query: data.tokens[0], key: data.keys[key], weight: two(row[key]), low: two(Math.min(...stages[0].scores[0][0])), high: two(Math.max(...stages[0].scores[0][0])),
    entropy: entropy(stages[0]), even: two(Math.log(count)), size: width, scaled: two(stages[1].weights[0][0][key]), after: entropy(stages[1]),
    heads: whole.heads[0], part: width / whole.heads[0], one: data.keys[largest(seconds[0])], first: two(Math.max(...seconds[0])), other: data.keys[largest(seconds[1])], second: two(Math.max(...seconds[1])),
    masked: move(3), mixed: move(4), variant: data.walks[last].variant,
  };
  const told = [[words.STEP_NO_SCALE, words.NO_SCALE], [words.STEP_SCALE, words.SCALED], [words.STEP_HEADS, words.HEADS_PART], [words.STEP_MASK, words.MASK_HIDES], [words.STEP_MIX, words.MIXES]];

  const box = element("aside", { class: "guide touch", "aria-label": words.FIRST_READING }), title = element("h3"), said = element("p", { "aria-live": "polite" });
  const [back, next, leave] = [words.BACK, words.NEXT, words.LEAVE].map((text) => element("button", { type: "button" }, text)), buttons = element("p");
  let step = 0;
  buttons.append(back, " ", next, " ", leave);
  box.append(title, said, buttons);
  document.getElementById("overview").before(box);

  function show() {
    title.textContent = fill(words.STEP_OF, { step: step + 1, of: told.length, name: told[step][0] });
    said.textContent = fill(told[step][1], known);
    back.disabled = step === 0;
    next.hidden = step === told.length - 1;
    const { weights } = stages[step], panel = { weights: Float64Array.from(weights.flat(2)), shape: [weights.length, count, data.keys.length], closed: (place) => step > 2 && place % data.keys.length > Math.floor(place / data.keys.length) };
    explore.guide(() => weights.map((_, head) => ({ walk: last, head, panel, name: weights.length > 1 ? fill(words.HEAD, { number: head + 1 }) : told[step][0] })));
  }
  function end() { box.remove(); document.getElementById("weights").classList.remove("guided"); }
  back.addEventListener("click", () => { step -= 1; show(); });
  next.addEventListener("click", () => { step += 1; show(); if (next.hidden) leave.focus(); });
  leave.addEventListener("click", () => explore.guide(null));
  explore.left = end;
  window.addEventListener("beforeprint", () => explore.guide(null));
  live.after.push(() => explore.guide(null)); // its numbers are those of the run
  document.getElementById("weights").classList.add("guided");
  show();
})();
