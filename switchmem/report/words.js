// What the other scripts build on: elements from texts, and how numbers and actions read.
// Every text of the run reaches the page by textContent or createTextNode: nothing is ever parsed as markup.

const CONDITIONS = [["none", "None", "N"], ["text", "Text", "T"], ["image", "Image", "I"], ["both", "Both", "B"]];
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

const data = JSON.parse(byId("data").textContent);
const { steps, demos, routers, sizes } = data;
for (const step of steps) { // a played step may be of a memory baseline, which has a name of its own
  for (const name of Object.keys(step.scores)) if (!CONDITIONS.some(([known]) => known === name)) CONDITIONS.push([name, name, "M"]);
}
const DONE = data.online ? "done" : "recorded"; // what the ring on a screen marks
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
