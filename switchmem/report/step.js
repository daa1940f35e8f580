// One step: its screens with the actions drawn on them, its memory, scores, and the router's choice.
// A picture is decoded when its step is looked at.

const PLACES = { none: [-1, -1], text: [-1, 1], image: [1, -1], both: [1, 1] }; // where an answer's letter stands
const marks = Object.fromEntries([["gold", true], ...CONDITIONS.map(([name]) => [name, true])]); // which actions are drawn
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
    const [dx, dy] = PLACES[name] || [1, 1];
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
    h("p", null, h("strong", { class: "c-gold" }, `${DONE}: `), describe(step.gold) || step.action_type),
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
  if (!own || !step.r.length) return null;
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
  if (!own || !step.r.length) return null;
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
  return h("fieldset", { class: "shows", "aria-label": "Actions drawn" }, [["gold", DONE, "◯"], ...CONDITIONS].map(toggle));
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
