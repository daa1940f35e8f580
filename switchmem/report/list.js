// The list of steps: only the rows in sight exist. Filters, search and keys.

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

const ROW = 54; // as in the style
const SPARE = 6; // rows beyond either edge
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
