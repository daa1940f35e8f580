// What stands between the page and the phone's screen. It runs in a world of its own beside each page, with the browser's
// real timers and out of the page's reach: they share the document and nothing else.
(() => {
  "use strict";
  const phone = (globalThis.phone = {});

  // Only the task is on the phone's screen. The app hides the reward panel and has a white ground; the blinking caret and
  // moving styles would make two pictures of one state differ.
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`
    #reward-display, #click-canvas, #sync-task-cover { display: none !important }
    html, body { background: #fff !important }
    * { caret-color: transparent !important; animation: none !important; transition: none !important;
        scroll-behavior: auto !important }
    input::-webkit-inner-spin-button { appearance: none } /* Android's number fields have no arrows */
    ::-webkit-scrollbar { display: none }`);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];

  // A touch becomes a click some time after it was sent. A tap has been dealt with when the mouse events that follow
  // it have come, or when the page refused them.
  let taps = 0;
  addEventListener("mouseup", () => taps++, true);
  addEventListener("touchend", (event) => setTimeout(() => event.defaultPrevented && taps++), { capture: true, passive: true });
  // What a finger moved is still when nothing has scrolled for a while.
  let scrolled = 0;
  addEventListener("scroll", () => (scrolled = performance.now()), true);
  phone.still = async (quiet, longest) => {
    const end = performance.now() + longest;
    do await new Promise((done) => setTimeout(done, quiet / 4));
    while (performance.now() < Math.min(end, scrolled + quiet));
    await frame();
    await frame();
  };
  // Where the view is when a frame is drawn, Chromium foresees from the finger's last moves and the time of day: it ends
  // some pixels from where the finger took it. Which element has moved, and how far it should have, is known.
  let held = [];
  const around = (node) => (node ? [node, ...around(node.parentElement)] : []);
  phone.hold = (x, y) => {
    const seen = [...around(document.elementFromPoint(x, y)), document.scrollingElement];
    held = seen.filter(Boolean).map((node) => ({ node, left: node.scrollLeft, top: node.scrollTop }));
  };
  phone.place = async (dx, dy) => {
    const moved = held.find(({ node, left, top }) => node.scrollLeft !== left || node.scrollTop !== top);
    held = [];
    if (!moved) return;
    moved.node.scrollTo(Math.round(moved.left + dx), Math.round(moved.top + dy));
    await frame();
    await frame();
  };
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  phone.taps = () => taps;
  phone.settled = async (tapsBefore, milliseconds) => {
    const end = performance.now() + milliseconds;
    while (taps <= tapsBefore && performance.now() < end) await new Promise((done) => setTimeout(done, 4));
    await frame();
    await frame();
  };
})();
