// The choices that Android shows as dialogs of its own (lists, dates, times), which Chromium draws outside of the page, where
// no screenshot and no touch reaches them. Here they are a modal dialog over the page, drawn and tapped like any part of it.
// It runs beside shim.js, in the same world, and adds `phone.back`.
(() => {
  "use strict";
  const TODAY = { year: 2023, month: 10, day: 15, hour: 15, minute: 34 }; // the phone's clock: this world has the real one
  const YEARS = [1900, 2100];
  const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December"];
  const STYLE = `
    :host { all: initial }
    dialog { box-sizing: border-box; width: 200px; max-height: 400px; margin: auto; padding: 6px; border: 0; border-radius: 4px;
      background: #fff; color: #000; font: 8px Arial, sans-serif; display: flex; flex-direction: column }
    dialog::backdrop { background: rgba(0, 0, 0, .6) }
    button, [role=option] { box-sizing: border-box; font: inherit; color: inherit; background: none; border: 0; padding: 0 4px;
      min-height: 22px; outline: none; text-align: center; flex: 1; cursor: default; touch-action: pan-y }
    [role=option] { display: flex; align-items: center; gap: 6px; min-height: 24px; flex: none }
    [role=option]::before { content: "○" / ""; color: #00796b } [role=option][aria-selected=true]::before { content: "●" / "" }
    [aria-multiselectable=true] > ::before { content: "☐" / "" !important }
    [aria-multiselectable=true] > [aria-selected=true]::before { content: "☑" / "" !important }
    button[aria-pressed=true] { background: #00796b; color: #fff; border-radius: 3px }
    .row { display: flex; flex: none } .rows, [role=listbox] { overflow-y: auto; min-height: 0 }
    .rows { display: grid; flex: none } h1 { font: bold 10px Arial, sans-serif; margin: 4px; text-align: center }
    .actions { margin-top: 4px; color: #00796b; font-weight: bold }`;

  let open = null;
  phone.back = () => open?.close();
  const two = (number) => String(number).padStart(2, "0");
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "tap") element.addEventListener("click", value);
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };
  const button = (text, tap, more = {}) => make("button", { type: "button", tap, ...more }, text);
  const actions = (...pairs) => make("div", { class: "row actions" }, ...pairs.map(([text, tap]) => button(text, tap)));

  // Show a dialog. `draw` fills it, and again whenever a choice in it changes.
  function show(label, draw) {
    const host = make("div");
    const dialog = make("dialog", { "aria-label": label });
    const shadow = host.attachShadow({ mode: "closed" });
    shadow.append(make("style", {}, STYLE), dialog);
    // The page must not hear what is done in a dialog of the system's.
    for (const kind of ["click", "mousedown", "mouseup", "pointerdown", "pointerup", "touchstart", "touchmove", "touchend"])
      host.addEventListener(kind, (event) => event.stopPropagation());
    shadow.addEventListener("click", (event) => event.target === dialog && outside(dialog, event) && dialog.close());
    dialog.addEventListener("close", () => { open = null; host.remove(); });
    const redraw = () => dialog.replaceChildren(...draw(redraw, () => dialog.close()));
    document.documentElement.append(host);
    redraw();
    open = dialog;
    dialog.showModal();
    dialog.querySelector("[data-first]")?.scrollIntoView({ block: "center" });
  }
  const outside = (dialog, event) => {
    const box = dialog.getBoundingClientRect();
    return event.clientX < box.left || event.clientX > box.right || event.clientY < box.top || event.clientY > box.bottom;
  };
  const tell = (field) => {
    for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, { bubbles: true }));
  };

  function showList(select) {
    const chosen = new Set([...select.options].filter((option) => option.selected));
    const finish = (close) => {
      for (const option of select.options) option.selected = chosen.has(option);
      close();
      tell(select);
    };
    const list = make("div", { role: "listbox", "aria-multiselectable": select.multiple });
    show("Choose", (redraw, close) => {
      const pick = (option) => {
        if (!select.multiple) chosen.clear();
        if (!chosen.delete(option)) chosen.add(option);
        if (select.multiple) redraw();
        else finish(close);
      };
      const scrolled = list.scrollTop;
      list.replaceChildren(...[...select.options].filter((option) => !option.disabled).map((option) =>
        make("div", { role: "option", "aria-selected": chosen.has(option), tap: () => pick(option) }, option.label)));
      queueMicrotask(() => (list.scrollTop = scrolled));
      return select.multiple ? [list, actions(["CANCEL", close], ["OK", () => finish(close)])] : [list];
    });
  }

  function showDate(field) {
    const [year, month, day] = field.value ? field.value.split("-").map(Number) : [TODAY.year, TODAY.month, TODAY.day];
    const date = { year, month, day };
    let choosesYear = false;
    show("Set date", (redraw, close) => {
      const move = (months) => () => {
        const at = date.year * 12 + date.month - 1 + months;
        [date.year, date.month] = [Math.floor(at / 12), (at % 12) + 1];
        redraw();
      };
      const days = new Date(Date.UTC(date.year, date.month, 0)).getUTCDate();
      date.day = Math.min(date.day, days);
      const head = make("div", { class: "row" }, button("‹", move(-1), { "aria-label": "Previous month" }),
        button(`${MONTHS[date.month - 1]} ${date.day}`, () => { choosesYear = false; redraw(); }),
        button(`${date.year}`, () => { choosesYear = true; redraw(); }, { "aria-label": `Year ${date.year}` }),
        button("›", move(1), { "aria-label": "Next month" }));
      const set = () => { field.value = `${date.year}-${two(date.month)}-${two(date.day)}`; close(); tell(field); };
      const clear = () => { field.value = ""; close(); tell(field); };
      const foot = actions(["CLEAR", clear], ["CANCEL", close], ["SET", set]);
      if (choosesYear) {
        const years = Array.from({ length: YEARS[1] - YEARS[0] + 1 }, (_, index) => YEARS[0] + index);
        const grid = make("div", { class: "rows", style: "grid-template-columns: repeat(4, 1fr); height: 220px" },
          ...years.map((value) => button(`${value}`, () => { date.year = value; choosesYear = false; redraw(); },
            { "aria-pressed": value === date.year })));
        // the years around the chosen one are seen first
        queueMicrotask(() => (grid.scrollTop = (Math.floor((date.year - YEARS[0]) / 4) - 5) * 22));
        return [head, grid, foot];
      }
      const empty = new Date(Date.UTC(date.year, date.month - 1, 1)).getUTCDay();
      const grid = make("div", { class: "rows", style: "grid-template-columns: repeat(7, 1fr)" },
        ...["S", "M", "T", "W", "T", "F", "S"].map((letter) => make("span", { style: "text-align: center" }, letter)),
        ...Array.from({ length: empty }, () => make("span")),
        ...Array.from({ length: days }, (_, index) => button(`${index + 1}`, () => { date.day = index + 1; redraw(); },
          { "aria-pressed": index + 1 === date.day })));
      return [head, grid, foot];
    });
  }

  function showTime(field) {
    const [hour, minute] = field.value ? field.value.split(":").map(Number) : [TODAY.hour, TODAY.minute];
    const time = { hour, minute };
    show("Set time", (redraw, close) => {
      const choice = (text, label, isChosen, choose) =>
        button(text, () => { choose(); redraw(); }, { "aria-label": label, "aria-pressed": isChosen });
      const isLate = time.hour >= 12;
      const hours = Array.from({ length: 12 }, (_, index) => choice(`${index || 12}`, `${index || 12} o'clock`,
        time.hour % 12 === index, () => (time.hour = index + (time.hour >= 12 ? 12 : 0))));
      const minutes = Array.from({ length: 60 }, (_, index) => choice(two(index), `${index} minutes`,
        time.minute === index, () => (time.minute = index)));
      const grid = (cells) => make("div", { class: "rows", style: "grid-template-columns: repeat(6, 1fr)" }, ...cells);
      const set = () => { field.value = `${two(time.hour)}:${two(time.minute)}`; close(); tell(field); };
      const clear = () => { field.value = ""; close(); tell(field); };
      return [
        make("h1", {}, `${time.hour % 12 || 12}:${two(time.minute)} ${isLate ? "PM" : "AM"}`),
        make("div", { class: "row" }, choice("AM", "AM", !isLate, () => (time.hour %= 12)),
          choice("PM", "PM", isLate, () => (time.hour = (time.hour % 12) + 12))),
        grid(hours), make("h1", {}, ":"), grid(minutes),
        actions(["CLEAR", clear], ["CANCEL", close], ["SET", set]),
      ];
    });
  }

  const shows = (element) => {
    const field = element instanceof Element ? element.closest("select, input[type=date], input[type=time]") : null;
    if (!field || field.disabled) return null;
    if (field instanceof HTMLSelectElement) return () => showList(field);
    return field.type === "date" ? () => showDate(field) : () => showTime(field);
  };
  // A list that is open on the page takes the touch itself, and no click follows: the tap is taken from it. Moving fingers scroll.
  let touched = null;
  addEventListener("touchstart", (event) => (touched = event.touches[0]), { capture: true, passive: true });
  addEventListener("touchend", (event) => {
    const lifted = event.changedTouches[0];
    const isTap = touched && Math.hypot(lifted.clientX - touched.clientX, lifted.clientY - touched.clientY) < 5;
    const start = isTap && !open && event.target.closest?.("select[multiple]") ? shows(event.target) : null;
    if (start === null) return;
    event.preventDefault();
    start();
  }, { capture: true, passive: false });
  // The browser opens its own picker when the button goes down, or on the click; both are kept from it.
  addEventListener("mousedown", (event) => shows(event.target) && event.preventDefault(), true);
  addEventListener("click", (event) => {
    const start = open ? null : shows(event.target);
    if (start === null) return;
    event.preventDefault();
    start();
  }, true);
  // Keys go to the dialog of the system, which takes none.
  for (const kind of ["keydown", "keypress", "keyup"])
    addEventListener(kind, (event) => {
      if (open === null) return;
      event.preventDefault();
      event.stopImmediatePropagation();
    }, true);
})();
