// Tables of new sources (data/import_sources.py): a use belongs to one column, and a chosen candidate leaves the others
// unused. A change sends all uses of its table.
window.chooseColumns = (element, trigger, watch) => {
  const inWork = new Set(); // tables in which the user chose: they do not fold under the cursor when all is decided
  const id = table => `${table.dataset.source} ${table.dataset.file}`;
  // Gradio updates the elements of the page one by one, and a dropdown keeps what was chosen in it.
  watch("value", () => element.querySelectorAll("select[data-column]").forEach(each => {
    each.value = each.dataset.use;
    if (inWork.has(id(each.closest("table")))) each.closest("details").open = true;
  }));
  element.addEventListener("change", event => {
    const select = event.target.closest("select[data-column]");
    if (!select) return;
    const table = select.closest("table");
    inWork.add(id(table));
    const selects = [...table.querySelectorAll("select[data-column]")];
    for (const other of selects) {
      const isTaken = select.value && other.value === select.value;
      const isLeft = other.value === "?" && other.dataset.candidate === select.value;
      if (other !== select && (isTaken || isLeft)) other.value = "";
    }
    const isOpen = each => each.value === "?";
    selects.forEach(each => each.classList.toggle("open", isOpen(each)));
    const used = selects.filter(each => each.value);
    if (!used.some(isOpen)) {
      const name = each => each.closest("tr").cells[0].textContent;
      const line = table.closest("details").querySelector("summary span");
      line.textContent = used.map(each => `${name(each)} → ${each.selectedOptions[0].text}`).join(", ");
      line.classList.remove("open");
    }
    const uses = used.map(each => `${each.dataset.column}=${each.value}`);
    const { source, file } = table.dataset;
    trigger("select", {index: [0, 0], value: source, row_value: [source, file, ...uses]});
  });
};
