// The address of the page is ?project=NAME#TAB or ?project=NAME#TAB/ELEMENT: links, reload and the browser's
// back button lead to the same project, tab and element. An element may be in a sub-tab or a fold, or be a sub-tab.
(() => {
  document.documentElement.lang = document.cookie.match(/(?:^|; )language=([a-z]+)/)?.[1] ?? "en";
  const TRIES = 1200; // two minutes, for a slow line or a busy machine
  const button = tab => document.getElementById(`tab-${tab}-button`);

  // The ids of the tabs around an element, from the outermost: Gradio draws a sub-tab when it is first opened.
  const tabsAround = element => {
    const { components, layout } = window.gradio_config;
    const known = Object.fromEntries(components.map(({ id, type, props }) => [id, { type, name: props.elem_id }]));
    const search = (node, tabs) => {
      const { type, name } = known[node.id] ?? {};
      const around = type === "tabitem" ? [...tabs, name] : tabs;
      return name === element ? around : node.children?.reduce((found, child) => found ?? search(child, around), null);
    };
    return search(layout, []) ?? [];
  };

  // Click a tab that the address names already: a click of the user on a tab changes the address, this one does not.
  let isFollowing = false;
  const open = tab => {
    isFollowing = true;
    tab.click();
    isFollowing = false;
  };

  // Open the sub-tabs and folds around an element.
  const reveal = element => {
    for (const tab of tabsAround(element)) {
      const found = document.getElementById(`${tab}-button`);
      if (found?.getAttribute("aria-selected") === "false") open(found);
    }
    const closed = document.getElementById(element)?.closest(".folded");
    if (closed) document.getElementById(`${closed.id}-button`)?.click();
  };

  const show = (element, tries, address = location.hash) => {
    if (location.hash !== address) return; // the user went elsewhere
    reveal(element);
    const found = document.getElementById(element);
    if (!found || !found.getClientRects().length) {
      if (tries) setTimeout(show, 100, element, tries - 1, address); // its tab is being drawn
      return;
    }
    if (found.matches('[role="tabpanel"]')) return;
    found.scrollIntoView({ block: "center" });
    found.querySelector("input, textarea, button, select")?.focus({ preventScroll: true });
  };

  const follow = (tries = TRIES) => {
    const [tab, element] = decodeURIComponent(location.hash.slice(1)).split("/");
    if (!/^[a-z]+$/.test(tab)) return;
    const found = button(tab);
    if (!found || found.getAttribute("aria-selected") !== "true") {
      if (found) open(found); // a click before Gradio is ready is lost
      if (tries) setTimeout(follow, 100, tries - 1);
      return;
    }
    const line = found.parentElement;
    line.scrollTo({ left: found.offsetLeft - line.clientWidth / 3 });
    if (element) show(element, TRIES);
  };

  addEventListener("popstate", () => { // hashchange is left out if ?project=NAME changes too
    const project = new URLSearchParams(location.search).get("project");
    if (project && openProject !== project) location.reload();
    else follow();
  });
  // Gradio's page has a base address without ?project=NAME, so a link to #TAB would load another page.
  addEventListener("click", event => {
    const link = event.target.closest?.('a[href^="#"]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const address = link.getAttribute("href");
    if (location.hash === address) follow();
    else location.hash = address;
  });
  // A relative address would be one of that base address, and lose ?project=NAME.
  const addressOf = hash => `${location.pathname}${location.search}#${hash}`;
  addEventListener("click", event => {
    const tab = event.target.closest?.('[id^="tab-"][id$="-button"]')?.id.slice(4, -7);
    if (!isFollowing && tab && location.hash.slice(1).split("/")[0] !== tab) {
      history.pushState(null, "", addressOf(tab));
    }
    const subTab = event.target.closest?.('.sub-tabs [role="tab"]');
    subTab?.scrollIntoView({ block: "nearest", inline: "center" }); // on a phone, not all fit
    if (!isFollowing && subTab) {
      const selected = document.querySelector('#tabs > .tab-wrapper [role="tab"][aria-selected="true"]');
      history.replaceState(null, "", addressOf(`${selected.id.slice(4, -7)}/${subTab.id.slice(0, -7)}`));
    }
    const fold = event.target.closest?.(".fold-button");
    if (fold) {
      const isOpen = fold.classList.toggle("open");
      fold.setAttribute("aria-expanded", isOpen);
      document.getElementById(fold.id.replace(/-button$/, ""))?.classList.toggle("folded", !isOpen);
    }
  }, true);

  // The arrow keys go from tab to tab.
  addEventListener("keydown", event => {
    const tab = event.target.closest?.('[role="tab"]'), step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!tab || !step) return;
    const all = [...tab.parentElement.querySelectorAll('[role="tab"]')];
    const next = all.at((all.indexOf(tab) + step) % all.length);
    next.focus();
    next.click();
    event.preventDefault();
  });

  // A button that deletes something asks first.
  addEventListener("click", event => {
    const button = event.target.closest?.("button.asks");
    if (button && !confirm(`${button.textContent.trim()}?`)) event.stopImmediatePropagation();
  }, true);

  // Report a change of a form to the server, once after a burst of changes and not before its tab is open.
  const REST_MS = 200;
  const waiting = {};
  const report = (stage, tab) => {
    const signal = document.querySelector(`#${stage}-form-changed :is(input, textarea)`);
    if (!signal || button(tab)?.getAttribute("aria-selected") !== "true") {
      waiting[stage] = setTimeout(report, 2 * REST_MS, stage, tab);
      return;
    }
    signal.value = Date.now();
    signal.dispatchEvent(new Event("input", { bubbles: true }));
  };
  window.formChanged = (stage, tab) => {
    clearTimeout(waiting[stage]);
    waiting[stage] = setTimeout(report, REST_MS, stage, tab);
  };

  // The page takes clicks while all forms have the values of its project: a later value would overwrite a typed
  // one, and a start is refused. See page.css.
  let openProject = "", filledFor = "";
  const takeClicks = () => {
    if (openProject && filledFor === openProject) document.body.dataset.project = openProject;
    else delete document.body.dataset.project;
  };
  window.formsFilled = name => {
    filledFor = name;
    takeClicks();
  };
  window.rememberProject = name => {
    if (!name) return;
    const address = new URL(location.href);
    if (address.searchParams.get("project") !== name) {
      const isFirst = !address.searchParams.has("project");
      address.searchParams.set("project", name);
      history[isFirst ? "replaceState" : "pushState"](null, "", address);
    }
    openProject = name;
    takeClicks();
  };

  // Send clicks on elements with data-send, and Enter on such rows, as if a cell of a table was selected.
  window.sendClicks = (element, trigger) => {
    const send = event => {
      const place = event.target.closest("[data-send]");
      if (!place || (place.dataset.question && !confirm(place.dataset.question))) return;
      if (place.matches("tr")) {
        element.querySelectorAll("tr.chosen").forEach(other => other.classList.remove("chosen"));
        place.classList.add("chosen");
      }
      const row = JSON.parse(place.dataset.send);
      trigger("select", { index: [0, 0], value: row[0], row_value: row });
    };
    element.addEventListener("click", send);
    element.addEventListener("keydown", event => {
      if (event.key === "Enter" && event.target.matches("tr")) send(event);
    });
  };

  // The sliders of limits below histograms (data/check_view.py): the nearest choice goes into the field of the form, its
  // text beside the slider and the line of the histogram to its place.
  addEventListener("input", event => {
    const slider = event.target.closest?.("[data-choices]");
    if (!slider) return;
    const choices = JSON.parse(slider.dataset.choices), wanted = Number(slider.value), { min, max } = slider;
    const far = ([value]) => Math.abs(value - wanted);
    const [value, text] = choices.reduce((best, each) => far(each) < far(best) ? each : best);
    slider.nextElementSibling.textContent = text;
    const name = slider.dataset.field, line = slider.closest("div").querySelector(`[data-limit="${name}"]`);
    const share = (Math.min(max, Math.max(min, value)) - min) / (max - min);
    for (const end of ["x1", "x2"]) line?.setAttribute(end, share * line.ownerSVGElement.viewBox.baseVal.width);
    const field = document.querySelector(`#CheckData-${name} input`);
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });

  // Copy the newest lines of each shown log into its box, unless the reader has scrolled up (running/log_box.py).
  window.followLogs = () => document.querySelectorAll(".log-source").forEach(source => {
    const place = document.getElementById(source.id.replace("-source", ""));
    const box = place?.querySelector(".log-view"), newest = source.querySelector(".log-view");
    if (!box || !newest || !box.clientHeight) return; // in a tab that is not open
    const log = source.querySelector("[data-log]")?.dataset.log;
    if (box.dataset.log !== log) { // another log, or other lines of it: nothing to hold
      box.dataset.log = log;
      box.dataset.held = "";
    }
    const isAtEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    const follow = () => {
      const latest = source.querySelector(".log-view");
      if (latest && box.innerHTML !== latest.innerHTML) box.innerHTML = latest.innerHTML;
      box.scrollTop = box.scrollHeight;
      place.classList.remove("held");
    };
    if (!box.dataset.seen) {
      box.dataset.seen = 1;
      box.addEventListener("scroll", () => {
        const was = box.dataset.held;
        box.dataset.held = isAtEnd() ? "" : "1";
        if (was && !box.dataset.held) follow();
      });
    }
    if (!box.dataset.held) follow();
    else if (box.innerHTML !== newest.innerHTML) place.classList.add("held");
  });

  // Show the running job in the title, and report once that one the page saw active has ended: there too, and as a
  // notification if permitted.
  const NAME = document.title || "IndexTTS2 Amharic";
  window.reportEndedJobs = () => {
    const line = document.querySelector("#now [data-jobs]");
    if (!line) return;
    const known = window.knownJobs ?? {};
    window.knownJobs = Object.fromEntries(JSON.parse(line.dataset.jobs).map(job => [job.id, job]));
    if (line.dataset.title) document.title = `${line.dataset.title} · ${NAME}`;
    else if (document.title.endsWith(`· ${NAME}`)) document.title = NAME;
    for (const job of Object.values(window.knownJobs)) {
      if (job.active || !known[job.id]?.active) continue;
      document.title = job.text;
      if (window.Notification?.permission === "granted") new Notification(document.title, { tag: job.id });
    }
  };

  // Hide the fields of a form, and groups of which all are hidden, whose name, title and help in the language of
  // the page do not contain the typed words; open the fold. Return the number of those that are left.
  // A style sheet, because Gradio writes the classes of its elements anew.
  window.searchFields = (command, fold, typed) => {
    const words = typed.toLowerCase().split(/[\s_-]+/).filter(Boolean);
    const fields = [...document.querySelectorAll(`[id^="${command}-"]`)].filter(each => each.matches(".block"));
    const textOf = field => `${field.id} ${field.innerText || field.textContent}`.toLowerCase().replace(/[_-]/g, " ");
    const hidden = fields.filter(field => !words.every(word => textOf(field).includes(word)));
    const isEmpty = group => [...group.querySelectorAll(".block")].filter(each => fields.includes(each))
      .every(field => hidden.includes(field));
    const empty = words.length ? [...document.querySelectorAll(".group[id]")].filter(isEmpty) : [];
    let sheet = document.getElementById(`${command}-search-style`);
    if (!sheet) {
      sheet = Object.assign(document.createElement("style"), { id: `${command}-search-style` });
      document.head.append(sheet);
    }
    const selector = [...hidden, ...empty].map(each => `#${each.id}`).join(",");
    sheet.textContent = selector && `${selector}{display:none!important}`;
    if (words.length && document.getElementById(fold)?.classList.contains("folded")) {
      document.getElementById(`${fold}-button`).click();
    }
    const number = `${fields.length - hidden.length} / ${fields.length}`;
    return words.length ? `<p aria-live="polite">${number}</p>` : "";
  };

  // Return what was typed in Speak since it last came to Compare, else what is typed there (listen/comparing.py).
  let spoken = null;
  window.followText = (typed, now) => {
    const isNew = typed !== spoken;
    spoken = typed;
    return isNew ? typed : now;
  };

  window.switchTheme = () => {
    localStorage.theme = document.body.classList.toggle("dark") ? "dark" : "light";
  };
  if (localStorage.theme) document.body.classList.toggle("dark", localStorage.theme === "dark");
  setTimeout(follow, 100);
})();
