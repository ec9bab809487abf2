// Charts (monitor/chart_svg.py): values under the pointer or at the arrow keys, and a range of steps by
// dragging or with Shift and the arrow keys. The range goes into a hidden field; the server draws it again.
(() => {
  const KEY_SHARE = 0.01; // of the width, for one press of an arrow key
  const LEAST_SHARE = 0.01; // a shorter drag is a click
  const read = new WeakMap(); // plot: { text, data }
  let drag = null; // { id, from }: the chart may be drawn again meanwhile

  const plotOf = event => event.target.closest?.(".chart .plot");
  const idOf = plot => plot.closest("[id^='plot-']")?.id;
  const share = (plot, event) => {
    const box = plot.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  const dataOf = plot => {
    const text = plot.dataset.points; // Gradio keeps the element when it changes the text
    if (read.get(plot)?.text !== text) read.set(plot, { text, data: JSON.parse(text) });
    return read.get(plot).data;
  };
  const stepAt = (plot, at) => {
    const [first, last] = dataOf(plot).span;
    return first + at * (last - first);
  };
  const nearest = (steps, step) => {
    let low = 0, high = steps.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle] < step) low = middle + 1; else high = middle;
    }
    return low && step - steps[low - 1] < steps[low] - step ? low - 1 : low;
  };
  const written = value => value && Math.abs(value) < 1e-3
    ? value.toExponential(2) : value.toLocaleString("en", { maximumSignificantDigits: 5 });

  const showValues = (plot, at) => {
    const data = dataOf(plot), step = stepAt(plot, at);
    const output = plot.querySelector("output");
    const rows = data.series.map(series => {
      const place = nearest(series.steps, step);
      const row = document.createElement("span"), value = document.createElement("b");
      row.className = `key ${series.css}`;
      value.textContent = written(series.values[place]);
      row.append(value, ` ${series.name}`);
      return row;
    });
    output.replaceChildren(`${data.step} ${Math.max(0, Math.round(step)).toLocaleString("en")}`, ...rows);
    output.style.cssText = at > 0.6 ? `right:${100 - 100 * at}%` : `left:${100 * at}%`;
    output.classList.add("shown");
    plot.querySelector(".cross").style.cssText = `display:block;left:${100 * at}%`;
    plot.dataset.at = at;
  };
  const hideValues = plot => {
    plot.querySelector("output").classList.remove("shown");
    plot.querySelector(".cross").style.cssText = "";
  };
  const showRange = (plot, from, to) => {
    plot.querySelector(".drag").style.cssText = from === null ? ""
      : `display:block;left:${100 * Math.min(from, to)}%;width:${100 * Math.abs(to - from)}%`;
  };
  const askFor = range => {
    const field = document.querySelector("#monitor-range textarea, #monitor-range input");
    field.value = range;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const zoom = (plot, from, to) => {
    showRange(plot, null);
    const [low, high] = [Math.min(from, to), Math.max(from, to)];
    if (high - low < LEAST_SHARE) return;
    const first = Math.max(0, Math.floor(stepAt(plot, low)));
    askFor(`${first} ${Math.max(first + 1, Math.ceil(stepAt(plot, high)))}`);
  };

  addEventListener("pointermove", event => {
    const dragged = drag && document.querySelector(`#${drag.id} .plot`);
    const plot = dragged || plotOf(event);
    if (plot) showValues(plot, share(plot, event));
    if (dragged) showRange(dragged, drag.from, share(dragged, event));
  });
  addEventListener("pointerout", event => {
    const plot = plotOf(event);
    if (plot && !plot.contains(event.relatedTarget)) hideValues(plot);
  });
  addEventListener("pointerdown", event => {
    const plot = plotOf(event);
    if (plot && event.button === 0) drag = { id: idOf(plot), from: share(plot, event) };
  });
  addEventListener("pointerup", event => {
    const plot = drag && document.querySelector(`#${drag.id} .plot`);
    if (plot) zoom(plot, drag.from, share(plot, event));
    drag = null;
  });
  addEventListener("pointercancel", () => {
    const plot = drag && document.querySelector(`#${drag.id} .plot`);
    if (plot) showRange(plot, null); // a finger that scrolls the page
    drag = null;
  });
  addEventListener("dblclick", event => { if (plotOf(event)) askFor(""); });
  addEventListener("click", event => { if (event.target.closest?.("[data-show-all]")) askFor(""); });
  addEventListener("focusout", event => { if (plotOf(event)) hideValues(plotOf(event)); });
  addEventListener("keydown", event => {
    const plot = plotOf(event);
    if (!plot) return;
    const at = Number(plot.dataset.at ?? 0), from = Number(plot.dataset.from ?? at);
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const to = Math.min(1, Math.max(0, at + (event.key === "ArrowLeft" ? -KEY_SHARE : KEY_SHARE)));
      showValues(plot, to);
      if (event.shiftKey) plot.dataset.from = from; else delete plot.dataset.from;
      showRange(plot, event.shiftKey ? from : null, to);
    } else if (event.key === "Enter" && plot.dataset.from !== undefined) {
      delete plot.dataset.from;
      zoom(plot, from, at);
    } else if (event.key === "Escape") {
      delete plot.dataset.from;
      showRange(plot, null);
      askFor("");
    } else return;
    event.preventDefault();
  });
})();
