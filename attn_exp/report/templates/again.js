(() => {
  // The changed numbers as a command, and as YAML: the run's own settings, and the arrays that were changed.
  const { data, live } = window.attention;
  if (!live || !data.live.command) return;
  const { now } = live, { line, key, first, inputs, projections, together, yaml } = data.live.command;
  const text = (value) => (Object.is(value, -0) ? "-0.0" : String(value));
  const listed = (name, between) => now[name].map((row) => `[${row.map(text).join(between)}]`);
  const isMatrix = (name) => /^[Wb]_/.test(name);

  /** Which arrays have to be said, and which settings before them. */
  function parts() {
    const names = live.changed();
    const said = (group, whole, chosen) => (together || chosen.length ? [{ group, names: whole || chosen }] : []);
    return [
      ...said("inputs", inputs.whole.length && inputs.whole, names.filter((name) => !isMatrix(name))),
      ...said("projections", together && projections.whole, names.filter(isMatrix)),
    ];
  }

  function command() {
    const word = (name) => [first[name], `'${key[name]}=[${listed(name, ",").join(",")}]'`].filter(Boolean).join(" ");
    return [line, ...parts().flatMap(({ group, names }) => [data.live.command[group].words, ...names.map(word)])].filter(Boolean).join(" ");
  }

  const isTree = (node) => typeof node === "object" && !Array.isArray(node);
  function merge(tree, more) {
    for (const [name, node] of Object.entries(more)) if (isTree(node) && isTree(tree[name] ?? "")) merge(tree[name], node); else tree[name] = structuredClone(node);
    return tree;
  }
  const written = (tree, indent = "") => Object.entries(tree).map(([name, node]) => {
    if (!isTree(node)) return `${indent}${name}: ${node}\n`;
    return `${indent}${name}:\n${written(node, `${indent}  `)}`;
  }).join("");

  /** Settings as a tree whose leaves are YAML. */
  function config() {
    const tree = structuredClone(yaml.start);
    for (const { group, names } of parts()) {
      merge(tree, yaml[group]);
      for (const name of names) {
        const path = key[name].replace("++", "").split("."), last = path.pop();
        const within = path.reduce((node, step) => (isTree(node[step] ?? "") ? node[step] : (node[step] = {})), tree);
        within[last] = `\n${listed(name, ", ").map((row) => `${"  ".repeat(path.length + 1)}- ${row}`).join("\n")}`;
      }
    }
    return yaml.top + written(tree).replace(/ +$/gm, "");
  }
  Object.assign(live, { line: command, yaml: yaml && config });
})();
