// The controls of the page, for a test that presses Tab.
const nameOf = one => one.closest("[id]:not([id^=svelte])")?.id + ": " +
  (one.ariaLabel || one.innerText || one.placeholder || one.type);

// The names of what a hand could use in the open tab and above.
window.controlNames = () => [
  ...document.querySelectorAll("button, input, textarea, select, summary, a[href]"),
].filter(one => {
  const box = one.getBoundingClientRect(), style = getComputedStyle(one);
  const isSeen = box.width > 1 && box.height > 1 && style.visibility !== "hidden";
  const isOther = one.type === "radio" && !one.checked;  // one of a group is reached, arrows do the rest
  const isCopy = one.closest("[aria-hidden=true]");  // with which Gradio measures the tabs
  return isSeen && !(one.disabled || one.readOnly || isOther || isCopy || one.type === "file");
}).map(nameOf);

// The name of what has the focus, and whether that is seen: by a ring or a shadow.
window.focusedControl = () => {
  const one = document.activeElement, style = getComputedStyle(one);
  const hasRing = style.outlineStyle !== "none" && style.outlineWidth !== "0px";
  const isSeen = hasRing || style.boxShadow !== "none";
  return [one === document.body ? "" : nameOf(one), isSeen];
};
