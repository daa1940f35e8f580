"use strict";
// The step browser. Every text of the run reaches the page by textContent or createTextNode: nothing is ever parsed as
// markup. The list holds only the rows in sight, and a picture is decoded when its step is looked at.
(() => {
  const CONDITIONS = [["none", "None", "N"], ["text", "Text", "T"], ["image", "Image", "I"], ["both", "Both", "B"]];
  const ROW = 54; // as in the style
  const SPARE = 6; // rows beyond either edge
  const PLACES = { none: [-1, -1], text: [-1, 1], image: [1, -1], both: [1, 1] }; // where an answer's letter stands
  const byId = (id) => document.getElementById(id);

  const fill = (element, attributes, children) => {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
  };
  const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const s = (tag, attributes, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

  // --- theme and help ---

  const THEMES = ["system", "light", "dark"];
  let theme = 0;
  byId("theme").addEventListener("click", () => {
    theme = (theme + 1) % THEMES.length;
    if (theme) document.documentElement.dataset.theme = THEMES[theme];
    else delete document.documentElement.dataset.theme;
    byId("theme").textContent = `◐ ${THEMES[theme]}`;
    byId("theme").setAttribute("aria-label", `Theme: ${THEMES[theme]}`);
  });
  const help = byId("help");
  byId("open-help").addEventListener("click", () => help.showModal());
  byId("close-help").addEventListener("click", () => help.close());

  const list = byId("list");
  if (!list) return; // a page without steps

  // --- data ---

  const data = JSON.parse(byId("data").textContent);
  const { steps, demos, routers, sizes } = data;
  const cut = (router) => Number(String(router.threshold).replace("inf", "Infinity"));
  const number = (value, digits) => (value === null ? "undefined" : Number(value).toFixed(digits).replace("-", "−"));
  const level = (value) => (value === "inf" ? "∞" : value === "-inf" ? "−∞" : number(value, 3));
  const other = (choice) => (choice === "image" ? "text" : "image");
  const isWrong = (step) => step.choice !== null && step.scores[step.choice] < step.scores[other(step.choice)];

  const place = ([x, y]) => `(${(100 * x).toFixed(0)} %, ${(100 * y).toFixed(0)} %)`;
  const describe = (action) => {
    if (!action) return "";
    const words = [action.type.replace("_", " ")];
    if (action.point) words.push(place(action.point));
    if (action.end) words.push("→", place(action.end));
    if (action.text !== null && action.text !== undefined) words.push(`“${action.text}”`);
    return words.join(" ");
  };

  const stacks = new Map(); // what a search looks through, made once for each step
  const haystack = (step) => {
    if (!stacks.has(step)) {
      const demo = demos[step.memory_id];
      const answers = Object.values(step.answers);
      const words = [step.step_id, step.instruction, step.category, describe(step.gold), demo && demo.instruction, ...answers];
      stacks.set(step, words.join("\n").toLowerCase());
    }
    return stacks.get(step);
  };
  const lowered = new Map();
  const memoryText = (step) => {
    if (!lowered.has(step.memory_id)) {
      lowered.set(step.memory_id, ((demos[step.memory_id] || {}).text || "").toLowerCase());
    }
    return lowered.get(step.memory_id);
  };

  // --- filters ---

  const value = (name) => {
    const field = byId(`filter-${name}`);
    return field ? field.value : "";
  };
  const AGREEMENT = {
    differ: (step) => step.scores.text !== step.scores.image,
    text: (step) => step.scores.text > step.scores.image,
    image: (step) => step.scores.image > step.scores.text,
    tied: (step) => step.scores.text === step.scores.image,
  };
  const CHOICE = {
    wrong: isWrong,
    right: (step) => step.scores[step.choice] > step.scores[other(step.choice)],
    text: (step) => step.choice === "text",
    image: (step) => step.choice === "image",
  };
  const wanted = () => {
    const tests = [];
    const [agreement, choice, group] = [value("agreement"), value("choice"), value("group")];
    const [category, type] = [value("category"), value("type")];
    if (agreement) tests.push(AGREEMENT[agreement]);
    if (choice) tests.push(CHOICE[choice]);
    if (group) tests.push((step) => step.groups.includes(group));
    if (category) tests.push((step) => step.category === category);
    if (type) tests.push((step) => step.action_type === type);
    if (byId("unparsable").checked) tests.push((step) => Object.values(step.reasons).some((reason) => reason !== null));
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length) {
      tests.push((step) => words.every((word) => haystack(step).includes(word) || memoryText(step).includes(word)));
    }
    return (step) => tests.every((test) => test(step));
  };

  // --- the list ---

  let shown = steps.map((_, n) => n); // numbers of the steps that pass the filters
  let at = 0; // place in `shown`
  const spacer = h("div", { class: "spacer" });
  list.append(spacer);
  const rows = new Map(); // place in `shown` -> its element
  let asked = 0;

  const pip = (step, [name, title, letter]) => {
    const score = step.scores[name];
    if (score === undefined) return null;
    const marks = ["pip", `c-${name}`, score > 0.5 ? "full" : "", step.choice === name ? "picked" : ""];
    return h("div", { class: marks.join(" "), title: `${title}: ${number(score, 2)}` }, h("span", null, letter));
  };
  const row = (place) => {
    const step = steps[shown[place]];
    const told = CONDITIONS.filter(([name]) => name in step.scores).map(([name, title]) => `${title} ${number(step.scores[name], 2)}`);
    const element = h(
      "div",
      {
        class: "row", role: "option", id: `row-${place}`, "aria-selected": String(place === at),
        "aria-setsize": shown.length, "aria-posinset": place + 1,
        "aria-label": [step.instruction || step.step_id, told.join(", "), step.choice && `chose ${step.choice}`].filter(Boolean).join("; "),
      },
      h("div", { class: "what", dir: "auto" }, step.instruction || step.step_id),
      h("div", { class: "id" }, `${step.step_id} · ${step.action_type}`),
      h("div", { class: "pips" }, CONDITIONS.map((condition) => pip(step, condition))),
    );
    element.style.top = `${place * ROW}px`;
    element.addEventListener("click", () => { choose(place); list.focus({ preventScroll: true }); });
    return element;
  };
  const paint = () => {
    asked = 0;
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - SPARE);
    const last = Math.min(shown.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + SPARE);
    for (const [place, element] of rows) {
      if (place < first || place >= last) { element.remove(); rows.delete(place); }
    }
    for (let place = first; place < last; place += 1) {
      if (!rows.has(place)) { const element = row(place); rows.set(place, element); list.append(element); }
    }
    if (rows.has(at)) list.setAttribute("aria-activedescendant", `row-${at}`);
    else list.removeAttribute("aria-activedescendant");
  };
  const askToPaint = () => { if (!asked) asked = requestAnimationFrame(paint); };
  list.addEventListener("scroll", askToPaint, { passive: true });
  window.addEventListener("resize", askToPaint);

  const choose = (place) => {
    if (!shown.length) return;
    const before = rows.get(at);
    if (before) before.setAttribute("aria-selected", "false");
    at = Math.max(0, Math.min(shown.length - 1, place));
    const top = at * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
    paint();
    rows.get(at).setAttribute("aria-selected", "true");
    tell(steps[shown[at]]);
  };
  const filter = () => {
    const kept = shown[at];
    const test = wanted();
    shown = [];
    steps.forEach((step, n) => { if (test(step)) shown.push(n); });
    byId("count").textContent = `${shown.length.toLocaleString("en")} of ${steps.length.toLocaleString("en")} steps`;
    for (const element of rows.values()) element.remove();
    rows.clear();
    spacer.style.height = `${shown.length * ROW}px`;
    at = 0;
    if (!shown.length) {
      paint();
      byId("detail").replaceChildren(h("p", { class: "absent" }, "No step passes these filters."));
      return;
    }
    choose(Math.max(0, shown.indexOf(kept)));
  };

  // --- one step ---

  const marks = { gold: true, none: true, text: true, image: true, both: true }; // which actions are drawn
  const WIDE = 360; // units across a drawn screen

  const mark = (name, letter, action, tall) => {
    if (!action || !action.point || !marks[name]) return null;
    const at = ([x, y]) => [x * WIDE, y * tall];
    const [x, y] = at(action.point);
    const parts = [];
    const stroke = (tag, attributes, width) => {
      parts.push(s(tag, { ...attributes, class: "under", "stroke-width": width + 3 }));
      parts.push(s(tag, { ...attributes, class: "over", "stroke-width": width }));
    };
    if (action.end) {
      const [a, b] = at(action.end);
      const turn = Math.atan2(b - y, a - x);
      const barb = (side) => [a - 16 * Math.cos(turn + side), b - 16 * Math.sin(turn + side)];
      const [left, right] = [barb(0.45), barb(-0.45)];
      stroke("path", { d: `M${x} ${y}L${a} ${b}M${left[0]} ${left[1]}L${a} ${b}L${right[0]} ${right[1]}` }, 4);
    }
    if (!letter) {
      stroke("circle", { cx: x, cy: y, r: 19 }, 4);
    } else {
      const [dx, dy] = PLACES[name];
      const [u, v] = [x + 24 * dx, y + 24 * dy];
      stroke("path", { d: `M${x} ${y}L${u} ${v}` }, 2.5);
      parts.push(s("circle", { class: "disc", cx: u, cy: v, r: 11 }), s("text", { x: u, y: v + 5.5 }, letter));
    }
    return s("g", { class: `c-${name}`, "data-mark": name }, parts);
  };
  const picture = (n, alt, drawn) => {
    const held = n === null || n === undefined ? null : byId(`picture-${n}`);
    if (!held) return null;
    const [width, height] = sizes[n];
    const tall = (WIDE * height) / width;
    const image = h("img", { alt, width, height, decoding: "async", class: width < 200 ? "small" : null });
    image.src = `data:image/webp;base64,${held.textContent}`;
    return h("div", { class: "screen" }, image, s("svg", { viewBox: `0 0 ${WIDE} ${tall}`, "aria-hidden": "true" }, drawn(tall)));
  };
  const absent = (missing) => h("p", { class: "absent" }, missing || "The picture is not in this page: see the note above the filters.");

  const current = (step) => {
    const drawn = (tall) => [
      mark("gold", "", step.gold, tall),
      ...CONDITIONS.map(([name, , letter]) => mark(name, letter, step.actions[name], tall)),
    ];
    return h(
      "div", { class: "panel" },
      h("h4", null, "Current screen"),
      picture(step.picture, "Current screen", drawn) || absent(step.missing),
      h("p", null, h("strong", { class: "c-gold" }, "recorded: "), describe(step.gold) || step.action_type),
    );
  };
  const remembered = (step) => {
    const demo = demos[step.memory_id] || { missing: "The demonstration is not at hand." };
    const done = demo.action ? h("p", null, h("strong", { class: "c-gold" }, "demonstrated: "), describe(demo.action)) : null;
    return [
      h(
        "div", { class: "panel" },
        h("h4", null, "Memory as image"),
        picture(demo.picture, "Screen of the demonstration", (tall) => mark("gold", "", demo.action, tall)) || absent(demo.missing),
        done,
      ),
      h(
        "div", { class: "panel words" },
        h("h4", null, "Memory as text"),
        demo.text ? h("pre", { tabindex: "0", dir: "auto", "aria-label": "Memory as text" }, demo.text) : absent(demo.missing || "Its screen has no text."),
        h("p", null, "its task: ", h("span", { dir: "auto" }, demo.instruction || "unknown")),
        h("p", { class: "small" }, h("code", null, step.memory_id), ` · cosine ${number(step.cosine, 3)}`),
      ),
    ];
  };
  const answers = (step) => {
    const line = ([name, title]) => {
      if (!(name in step.scores)) return null;
      const reason = step.reasons[name];
      const read = step.actions[name] ? describe(step.actions[name]) : reason ? `unparsable: ${reason}` : "–";
      return h(
        "tr", null,
        h("th", { scope: "row", class: `c-${name}` }, title, step.choice === name ? " (chosen)" : ""),
        h("td", { class: "score" }, number(step.scores[name], 2)),
        h("td", { class: step.actions[name] ? null : "c-warn", dir: "auto" }, read),
        h("td", null, h("code", { dir: "auto" }, step.answers[name])),
      );
    };
    const heads = ["condition", "score", "action", "raw answer"].map((title) => h("th", { scope: "col" }, title));
    return h("table", { class: "answers" }, h("thead", null, h("tr", null, heads)), h("tbody", null, CONDITIONS.map(line)));
  };

  // r, t and tau share one strip, as far as nearly all of them reach; the few beyond stand at its ends
  const own = routers[0];
  const tau = own ? cut(own) : NaN;
  const spread = steps.flatMap((step) => [step.r[0], step.t]).filter(Number.isFinite).map(Math.abs).sort((a, b) => a - b);
  const reach = Math.max(spread[Math.floor(0.995 * (spread.length - 1))] || 0, Number.isFinite(tau) ? Math.abs(tau) : 0) || 1;
  const strip = (step) => {
    if (!own) return null;
    const x = (v) => 310 + (270 * Math.max(-reach, Math.min(reach, v))) / reach;
    const edge = Number.isFinite(tau) ? x(tau) : tau > 0 ? 590 : 30;
    const r = step.r[0];
    const verdict = `r = ${number(r, 3)} ${r >= tau ? "≥" : "<"} tau = ${level(own.threshold)}: ${step.choice === "image" ? "Image" : "Text"}`;
    const t = step.t === null ? "" : `; t = ${number(step.t, 3)}`;
    return h(
      "div", null,
      h("p", null, h("strong", null, `${own.policy}: `), `${verdict}${t} `, isWrong(step) ? h("strong", { class: "c-warn" }, "The other form scores higher.") : null),
      s(
        "svg", { class: "router", viewBox: "0 0 620 62", role: "img", "aria-label": verdict + t },
        s("line", { class: "grid", x1: 30, x2: 590, y1: 30, y2: 30 }),
        s("text", { x: 30, y: 56 }, "← Text"), s("text", { x: 590, y: 56, "text-anchor": "end" }, "Image →"),
        s("line", { class: "best", x1: edge, x2: edge, y1: 14, y2: 46 }),
        s("text", { x: edge, y: 58, "text-anchor": "middle" }, "tau"),
        step.t === null ? null : [
          s("path", { class: "of-other", d: `M${x(step.t)} 23l7 7l-7 7l-7 -7z` }),
          s("text", { x: x(step.t), y: 13, "text-anchor": "middle" }, "t"),
        ],
        s("circle", { class: step.choice === "image" ? "of-image" : "of-text", cx: x(r), cy: 30, r: 7 }),
        s("text", { x: x(r), y: 13, "text-anchor": "middle" }, "r"),
      ),
    );
  };
  let unfolded = false; // whether all routers are listed
  const everyRouter = (step) => {
    if (!own) return null;
    const heads = ["policy", "seed", "r", "tau", "chooses"].map((title) => h("th", { scope: "col" }, title));
    const lines = routers.map((router, n) => {
      const cells = [router.seed, number(step.r[n], 3), level(router.threshold), step.r[n] >= cut(router) ? "Image" : "Text"];
      return h("tr", null, h("th", { scope: "row" }, router.policy), cells.map((cell) => h("td", null, String(cell))));
    });
    const box = h(
      "details", { class: "routers" },
      h("summary", null, `All ${routers.length} routers on this step`),
      h("div", { class: "scroll" }, h("table", null, h("thead", null, h("tr", null, heads)), h("tbody", null, lines))),
    );
    box.open = unfolded;
    box.addEventListener("toggle", () => { unfolded = box.open; });
    return box;
  };
  const toggles = (step) => {
    const toggle = ([name, title, letter]) => {
      if (name !== "gold" && !(name in step.scores)) return null;
      const box = h("input", { type: "checkbox", "data-show": name });
      box.checked = marks[name];
      box.addEventListener("change", () => { marks[name] = box.checked; tell(step); byId("detail").querySelector(`[data-show=${name}]`).focus(); });
      return h("label", { class: `c-${name}` }, box, letter ? `${letter} ${title}` : title);
    };
    return h("fieldset", { class: "shows", "aria-label": "Actions drawn" }, [["gold", "recorded", "◯"], ...CONDITIONS].map(toggle));
  };
  const tell = (step) => {
    const chips = [step.category, step.action_type, `step ${step.index}`, ...step.groups].filter(Boolean);
    byId("detail").replaceChildren(...[
      h("h3", { dir: "auto" }, step.instruction || step.step_id),
      h("p", { class: "meta" }, h("code", null, step.step_id), chips.map((text) => h("span", { class: "chip" }, text))),
      toggles(step),
      h("div", { class: "panels" }, current(step), remembered(step)),
      answers(step),
      strip(step),
      everyRouter(step),
    ].filter(Boolean));
  };

  // --- input ---

  const form = byId("filters");
  let waiting = 0;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  byId("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 120); });

  const page = () => Math.max(1, Math.floor(list.clientHeight / ROW) - 1);
  const MOVES = { ArrowDown: () => at + 1, ArrowUp: () => at - 1, PageDown: () => at + page(), PageUp: () => at - page(), Home: () => 0, End: () => shown.length - 1 };
  list.addEventListener("keydown", (event) => {
    if (event.key in MOVES && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      choose(MOVES[event.key]());
    }
  });
  const KEYS = {
    j: () => choose(at + 1),
    k: () => choose(at - 1),
    "/": () => { byId("search").focus(); byId("search").select(); },
    "?": () => help.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const typing = event.target.closest("input:not([type=checkbox]), select, textarea");
    if (typing) {
      if (event.key === "Escape") list.focus();
      return;
    }
    if (event.key in KEYS) {
      event.preventDefault();
      KEYS[event.key]();
    }
  });
  filter();
  document.addEventListener("DOMContentLoaded", () => { if (shown.length) tell(steps[shown[at]]); }); // pictures are in now
})();
