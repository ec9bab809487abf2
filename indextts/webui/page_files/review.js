// Review of clips (webui/data/review_list.py) by keyboard and mouse. One row is chosen; it has the buttons. Decisions
// are sent one after the other, each with a serial number, and the next row is chosen without waiting for the answer.
(() => {
  const ANSWER_MS = 15000;
  const KEYS = { " ": "play", k: "keep", r: "reject", o: "swap", e: "edit", c: "reset", u: "undo", n: "next", p: "previous",
    ArrowDown: "next", ArrowUp: "previous", PageDown: "next page", PageUp: "previous page" };
  const undone = []; // keys of this browser's decisions, to undo the last one first
  const queue = []; // of what is to be sent
  const revisions = new Map(); // clip: revision of its row
  let list, send, sent = null, serial = 0, timeout;
  let chosen = "", editing = null, isFocused = false, wish = null, listName = null;

  const find = id => document.getElementById(id);
  const rows = () => [...list.querySelectorAll("tr[data-clip]")];
  const rowOf = id => rows().find(row => row.dataset.clip === id);
  const audio = () => find("review-audio");
  const isLoaded = () => list?.isConnected;

  const markPlaying = () => rows().forEach(row => row.classList.toggle("playing",
    audio()?.paused === false && audio().dataset.clip === row.dataset.clip)); // the list may be drawn before it
  const play = (row, isNew) => {
    const player = audio(), address = row.querySelector(".play").dataset.audio;
    if (!address) return;
    if (!player.dataset.followed) {
      player.dataset.followed = 1;
      ["play", "pause", "ended"].forEach(name => player.addEventListener(name, () => isLoaded() && markPlaying()));
    }
    const isSame = player.dataset.clip === row.dataset.clip;
    if (isSame && !player.paused && !isNew) return player.pause();
    if (!isSame) player.src = address;
    else if (isNew) player.currentTime = 0;
    player.dataset.clip = row.dataset.clip;
    player.play().catch(() => {});
  };

  const buttons = which => list.querySelectorAll("template")[which].content.cloneNode(true);
  const choose = (row, { hasFocus = isFocused, isPlayed = false } = {}) => {
    if (editing && editing.id !== row.dataset.clip) stopEditing();
    for (const other of rows()) {
      const isThis = other === row;
      other.classList.toggle("chosen", isThis);
      other.tabIndex = isThis ? 0 : -1;
      other.setAttribute("aria-selected", isThis);
      if (!isThis) other.querySelector(".clip-acts")?.remove();
    }
    chosen = row.dataset.clip;
    if (!row.querySelector(".clip-acts")) {
      row.querySelector(".clip-cell").append(buttons(0));
      row.querySelector('[data-act="swap"]').hidden = !("swap" in row.dataset);
      row.querySelector('[data-act="undo"]').hidden = !row.dataset.key;
      row.querySelector('[data-act="reset"]').hidden = !row.dataset.key;
    }
    if (hasFocus) {
      row.focus({ preventScroll: true });
      row.scrollIntoView({ block: "nearest" });
    }
    if (isPlayed && localStorage.autoplay) play(row, true);
  };

  // Choose a row after the list was replaced, and go on with the text that was being edited.
  const restore = () => {
    revisions.clear();
    const all = rows();
    if (!all.length) return;
    const name = list.querySelector("table").dataset.list;
    if (name !== listName) wish = "undecided";
    listName = name;
    const undecided = all.find(row => !row.classList.contains("decided"));
    const wanted = { first: all[0], last: all.at(-1), undecided }[wish];
    const row = wanted ?? rowOf(chosen) ?? undecided ?? all[0];
    const typed = editing?.id === row.dataset.clip ? editing.field.value : null;
    editing = null;
    choose(row, { isPlayed: wish !== null && isFocused });
    wish = null;
    if (typed !== null) edit(row, typed);
    markPlaying();
  };

  const move = (row, step) => {
    const all = rows(), next = all[all.indexOf(row) + step];
    if (next) choose(next, { hasFocus: true, isPlayed: true });
    else turn(step, step > 0 ? "first" : "last");
  };
  const turn = (step, wanted) => {
    const button = find(step ? (step > 0 ? "review-forth" : "review-back") : "review-seek");
    if (button.disabled) return;
    wish = wanted;
    button.click();
  };
  const leave = row => { // for the next clip to decide
    const all = rows(), place = all.indexOf(row);
    const next = all.slice(place + 1).find(other => !other.matches(".decided, .waiting"));
    if (next) choose(next, { hasFocus: true, isPlayed: true });
    else queue.push({ turn: true });
  };

  const edit = (row, typed) => {
    const text = row.querySelector(".clip-text"), field = document.createElement("textarea");
    field.value = typed ?? text.textContent;
    field.maxLength = +list.querySelector("table").dataset.maxChars;
    field.dir = "auto";
    field.setAttribute("aria-label", list.querySelectorAll("th")[1].textContent);
    text.hidden = true;
    text.after(field);
    row.querySelector(".clip-acts").replaceWith(buttons(1));
    row.classList.add("editing");
    editing = { id: row.dataset.clip, field };
    const fit = () => { field.style.height = "auto"; field.style.height = `${field.scrollHeight + 2}px`; };
    field.addEventListener("input", fit);
    fit();
    field.focus();
  };
  const stopEditing = () => {
    const row = editing.field.closest("tr");
    editing.field.remove();
    editing = null;
    if (!row?.isConnected) return;
    row.classList.remove("editing");
    row.querySelector(".clip-text").hidden = false;
    row.querySelector(".clip-acts").remove();
  };
  const finishEditing = isSaved => {
    const { id, field } = editing, row = field.closest("tr");
    const typed = field.value;
    const isChanged = typed !== row.querySelector(".clip-text").textContent;
    stopEditing();
    choose(row, { hasFocus: true });
    if (isSaved && isChanged) add(row, "text", typed);
    next();
  };

  const add = (row, action, value = "") => {
    row?.classList.add("waiting");
    queue.push({ id: row?.dataset.clip ?? "", action, value, project: list.querySelector("table").dataset.project });
  };
  const next = () => {
    if (sent || !queue.length) return;
    const item = queue.shift();
    if (item.turn) {
      turn(0, "undecided");
      return next();
    }
    if (item.action === "undo" && !item.value) item.value = undone.at(-1) ?? "";
    sent = { ...item, serial: ++serial };
    timeout = setTimeout(() => answered(null), ANSWER_MS);
    const values = [sent.project, sent.action, sent.id, sent.value];
    send("select", { index: [sent.serial, 0], value: sent.id, row_value: values }); // as a table
  };
  const act = (row, action) => {
    if (action === "play") return play(row);
    if (action === "next") return move(row, 1);
    if (action === "previous") return move(row, -1);
    if (action === "next page") return turn(1, "undecided");
    if (action === "previous page") return turn(-1, "first");
    if (action === "edit") return edit(row);
    if (action === "save" || action === "cancel") return finishEditing(action === "save");
    if (action === "swap" && !("swap" in row.dataset)) return;
    add(action === "undo" ? null : row, action);
    if (["keep", "reject", "swap"].includes(action)) leave(row);
    next();
  };

  const replace = (id, html, revision) => {
    const row = rowOf(id);
    if (!row || editing?.id === id || (revisions.get(id) ?? -1) > revision) return;
    revisions.set(id, revision);
    const body = document.createElement("tbody");
    body.innerHTML = html;
    const isPlaying = row.classList.contains("playing");
    row.replaceWith(body.firstElementChild);
    if (isPlaying) rowOf(id).classList.add("playing");
    if (id === chosen) choose(rowOf(id));
  };
  const show = answer => {
    for (const [id, html] of Object.entries(answer.rows ?? {})) replace(id, html, answer.revision);
  };
  const answered = answer => {
    clearTimeout(timeout);
    const { action, id, value } = sent;
    sent = null;
    rowOf(id)?.classList.remove("waiting");
    if (action === "undo" && (answer || undone.at(-1) === value)) {
      const place = undone.indexOf(value);
      if (place >= 0) undone.splice(place, 1);
    }
    if (answer) {
      if (answer.key) undone.push(answer.key);
      show(answer);
      if (action === "undo" && rowOf(answer.id)) choose(rowOf(answer.id));
      find("review-said").textContent = answer.said;
    } else if (action === "text" && rowOf(id) && !editing) {
      choose(rowOf(id));
      edit(rowOf(id), value);
    }
    next();
  };

  // the answer to a decision; an older one if the decision failed, which the page has said
  window.reviewAnswered = text => {
    const answer = text ? JSON.parse(text) : null;
    if (sent && isLoaded()) answered(answer?.serial === sent.serial ? answer : null);
  };
  window.reviewFollowed = text => {
    if (text && isLoaded()) show(JSON.parse(text));
  };

  const onKey = event => {
    const row = event.target.closest("tr[data-clip]");
    if (!row || event.altKey) return;
    if (event.target.matches("textarea")) {
      if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
      event.preventDefault();
      return finishEditing(event.key === "Enter");
    }
    const isUndo = (event.ctrlKey || event.metaKey) && event.code === "KeyZ";
    if (!isUndo && (event.ctrlKey || event.metaKey || event.shiftKey)) return;
    if (event.target.matches("button") && [" ", "Enter"].includes(event.key)) return;
    const isLetter = /^Key[A-Z]$/.test(event.code) && event.key > "~"; // an Ethiopic keyboard has no k
    const key = isLetter ? event.code[3].toLowerCase() : event.key;
    const action = isUndo ? "undo" : KEYS[key] ?? KEYS[key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    if (!row.classList.contains("chosen")) choose(row);
    if (action === "undo" && !undone.length && !queue.length && !sent) undoRow(row);
    else act(row, action);
  };
  const undoRow = row => {
    queue.push({ id: row.dataset.clip, action: "undo", value: row.dataset.key,
      project: list.querySelector("table").dataset.project });
    next();
  };
  const onClick = event => {
    const row = event.target.closest("tr[data-clip]");
    if (!row) return;
    const button = event.target.closest("[data-act]"), action = button?.dataset.act;
    if (action === "undo") return undoRow(row);
    if (action) return act(row, action);
    if (event.target.closest("textarea")) return;
    if (!row.classList.contains("chosen")) choose(row, { hasFocus: true });
    if (event.target.closest(".play")) play(row);
  };

  window.reviewList = (element, trigger, watch) => {
    [list, send] = [element, trigger];
    const said = Object.assign(document.createElement("p"), { id: "review-said", role: "status" });
    if (!find("review-said")) element.after(said);
    element.addEventListener("click", onClick);
    element.addEventListener("keydown", onKey);
    watch("value", restore);
    restore();
  };
  addEventListener("focusin", event => { isFocused = !!event.target.closest?.("#review-list"); });
  addEventListener("beforeunload", event => { if (sent || queue.length) event.preventDefault(); });
  addEventListener("change", event => {
    if (event.target.id === "review-autoplay") localStorage.autoplay = event.target.checked ? 1 : "";
  });
})();
