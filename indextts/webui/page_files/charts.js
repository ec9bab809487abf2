// Charts (monitor/charts.py): drawn from their numbers as SVG with HTML labels; values under the pointer or at the
// arrow keys, and a range of steps by dragging or with Shift and the arrow keys. The range goes into a hidden field;
// the server sends its points. The svg has SIZE units in both directions; its strokes keep their width (monitor.css).
(() => {
  const KEY_SHARE = 0.01; // of the width, for one press of an arrow key
  const LEAST_SHARE = 0.01; // a shorter drag is a click
  const SIZE = 1000;
  const VALUE_MARGIN = 0.05; // of the values, above and below the lines
  const STEP_MARGIN = 0.008; // of the steps, before and after the lines
  const POINTED = 40; // a series with fewer points shows each as a dot
  const OUTLIERS = [0.02, 0.98]; // quantiles of unsmoothed values that stay in view
  const ROWS = 5, COLUMNS = 6; // about this many lines across, and steps below
  const FLAG_SHARE = 0.14; // of the width that the text of a mark takes
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
    if (read.get(plot)?.text !== text) {
      const data = JSON.parse(text), [first, last] = data.span;
      const margin = STEP_MARGIN * (last - first); // room for the dots at both ends
      Object.assign(data, { x: scale(first - margin, last + margin), y: valueScale(data) });
      read.set(plot, { text, data });
    }
    return read.get(plot).data;
  };
  const stepAt = (plot, at) => {
    const { low, high } = dataOf(plot).x;
    return low + at * (high - low);
  };
  const nearest = (steps, step) => {
    let low = 0, high = steps.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle] < step) low = middle + 1; else high = middle;
    }
    return low && step - steps[low - 1] < steps[low] - step ? low - 1 : low;
  };
  const written = (value, digits = 5) => {
    if (value && Math.abs(value) < 1e-3) return value.toExponential(2).replace(/\.?0+e/, "e");
    const isLarge = Math.abs(value) >= 1000;
    return value.toLocaleString("en", isLarge ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: digits });
  };

  // A conversion of steps or values to a share of the axis, from 0 at `low` to 1 at `high`.
  const scale = (low, high, isLog = false) => {
    const of = isLog ? Math.log10 : value => value;
    return { low, high, isLog, at: value => (of(value) - of(low)) / (of(high) - of(low)) };
  };
  // Of all lines within the span. Outliers of unsmoothed values may lie outside, and a first value far above or
  // below all others: that of the untrained model would leave the rest a flat line.
  const valueScale = data => {
    const [first, last] = data.span;
    const ends = data.series.flatMap(({ css, steps, values }) => {
      const within = values.filter((_, place) => steps[place] >= first && steps[place] <= last);
      const [begin, ...later] = within, least = Math.min(...later), most = Math.max(...later);
      const isFar = later.length > 2 && Math.max(begin - most, least - begin) > most - least;
      const sorted = (isFar ? later : within.length ? within : [...values]).sort((one, other) => one - other);
      const at = css.includes("raw") ? OUTLIERS : [0, 1];
      return at.map(share => sorted[Math.round(share * (sorted.length - 1))]);
    });
    const low = Math.min(...ends), high = Math.max(...ends);
    if (data.is_log) {
      const margin = Math.max((high / low) ** VALUE_MARGIN, 1.05);
      return scale(low / margin, high * margin, true);
    }
    const margin = VALUE_MARGIN * (high - low) || 0.1 * Math.abs(high) || 1;
    return scale(low - margin, high + margin);
  };
  // About this many round numbers within a scale.
  const ticks = ({ low, high, isLog }, wanted) => {
    for (const factors of isLog ? [[1, 2, 5], [1]] : []) {
      const found = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
        found.push(...factors.map(factor => factor * 10 ** power).filter(value => low <= value && value <= high));
      }
      if (found.length >= 2 && found.length <= 2 * wanted) return found;
    }
    const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
    const unit = power * [1, 2, 2.5, 5, 10].find(factor => power * factor >= rough * 0.999);
    const found = [];
    // + 0, because the ceiling of a small negative number is -0, which is shown as such
    for (let place = Math.ceil(low / unit); place <= Math.floor(high / unit); place++) found.push(place * unit + 0);
    return found;
  };
  const element = (name, css, text, style) => {
    const made = Object.assign(document.createElement(name), { className: css, textContent: text });
    made.style.cssText = style;
    return made;
  };
  const draw = plot => {
    const data = dataOf(plot), { x, y } = data;
    const across = step => Math.round(SIZE * x.at(step)), down = value => SIZE - Math.round(SIZE * y.at(value));
    const path = (css, d) => d && `<path class="${css}" d="${d}"/>`;
    const marks = data.marks.filter(({ step }) => data.span[0] <= step && step <= data.span[1]);
    const rows = ticks(y, ROWS), columns = ticks(x, COLUMNS).filter(step => Number.isInteger(step) && step >= 0);
    const vertical = kind => marks.filter(mark => mark.kind === kind).map(mark => `M${across(mark.step)} 0v${SIZE}`);
    const lines = data.series.map(({ css, steps, values }) => {
      const places = steps.map((step, place) => `${across(step)} ${down(values[place])}`);
      const dots = places.length < POINTED ? places.map(place => `M${place}h0`).join("") : "";
      return path(css, places.length > 1 ? `M${places.join("L")}` : "") + path(`${css} dots`, dots);
    });
    const svg = `<svg viewBox="0 0 ${SIZE} ${SIZE}" preserveAspectRatio="none" aria-hidden="true">`
      + path("grid", rows.map(value => `M0 ${down(value)}h${SIZE}`).join(""))
      + path("resume", vertical("resume").join("")) + path("best", vertical("best").join(""))
      + lines.join("") + "</svg>";
    plot.innerHTML = svg;
    plot.append(
      ...rows.map(value => element("span", "y", written(value, 4), `top:${down(value) / 10}%`)),
      ...columns.map(step => element("span", "x", written(step, 4), `left:${100 * x.at(step)}%`)),
      ...flags(marks, x, y),
      element("div", "cross", "", ""), element("div", "drag", "", ""), document.createElement("output"),
    );
  };
  // The texts of the marks that have room, the best step first, and its dot.
  const flags = (marks, x, y) => {
    const taken = [];
    const ordered = [...marks].sort((one, other) =>
      (one.kind !== "best") - (other.kind !== "best") || one.step - other.step);
    return ordered.flatMap(({ step, text, kind, value }) => {
      const share = x.at(step), left = `left:${100 * share}%`;
      const isDrawn = value !== null && (value > 0 || !y.isLog);
      const dot = isDrawn ? [element("i", "best-dot", "", `${left};top:${100 - 100 * y.at(value)}%`)] : [];
      const isBefore = share > 1 - FLAG_SHARE, begin = isBefore ? share - FLAG_SHARE : share;
      if (taken.some(other => Math.abs(begin - other) < FLAG_SHARE)) return dot;
      taken.push(begin);
      return [...dot, element("span", `flag ${kind}${isBefore ? " before" : ""}`, text, left)];
    });
  };
  window.drawChart = (component, watch) => {
    const drawAll = () => component.querySelectorAll(".plot").forEach(draw);
    watch("value", drawAll);
    drawAll();
  };

  const showValues = (plot, at) => {
    const data = dataOf(plot), step = stepAt(plot, at);
    const output = plot.querySelector("output");
    const rows = data.series.filter(series => !series.css.includes("raw")).map(series => {
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
  // Its component fills the screen and not the chart, which is drawn again while a run goes on.
  addEventListener("click", event => {
    const place = event.target.closest?.("[data-full]")?.closest("[id^='plot-']");
    if (place) document.fullscreenElement ? document.exitFullscreen() : place.requestFullscreen();
  });
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
