// Returns the faults in the layout of the open tab; page_layout.py says which.
maxScreens => {
  const isVisible = element => element.checkVisibility({opacityProperty: true, visibilityProperty: true})
    && element.getClientRects().length > 0;
  const problems = [];
  const root = document.documentElement;
  scrollTo(0, 0);
  const main = document.querySelector('.tabitem:not([style*="display: none"])') ?? document.body;
  const primary = 'button.primary:not(:disabled), a.primary-link';
  for (const button of main.querySelectorAll(primary)) {
    if (!isVisible(button)) continue;
    const bottom = button.getBoundingClientRect().bottom;
    const name = button.id || button.innerText;
    if (bottom > innerHeight) problems.push(`${name} ends at ${Math.round(bottom)} of ${innerHeight}`);
  }
  const isLong = innerWidth >= 1100 && root.scrollHeight > maxScreens * innerHeight;
  if (isLong) problems.push(`${root.scrollHeight} pixels long`);
  if (root.scrollWidth > innerWidth) {
    const wide = [...document.querySelectorAll('body *')].filter(element => isVisible(element)
      && element.getBoundingClientRect().right > innerWidth + 1);
    const names = wide.slice(-3).map(element => `${element.tagName}#${element.id}.${element.className}`);
    problems.push(`${root.scrollWidth} pixels wide: ${names}`);
  }
  for (const side of main.querySelectorAll('.side-column')) {
    if (side.scrollWidth > side.clientWidth + 1) problems.push(`a side panel is ${side.scrollWidth} pixels wide`);
    for (const part of side.children) {
      const beside = part.getBoundingClientRect().left > side.getBoundingClientRect().right;
      if (beside) problems.push(`${part.id} lies beside its panel`);
    }
  }
  const hidden = [...document.querySelectorAll('.overflow-menu > button')].some(isVisible);
  if (hidden) problems.push('a menu hides tabs');
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (top, below) => [0, 1, 2].map(c => top[c] * top[3] + below[c] * (1 - top[3])).concat(1);
  const background = element => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const layer = rgba(getComputedStyle(at).backgroundColor);
      if (layer[3] > 0) layers.push(layer);
      if (layer[3] === 1) break;
    }
    return layers.reduceRight((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const luminance = colour => {
    const [red, green, blue] = colour.slice(0, 3).map(value => value / 255)
      .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ratioOf = (colour, below) => {
    const [light, dark] = [luminance(over(rgba(colour), below)), luminance(below)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
  for (const path of [...main.querySelectorAll('sound-player path')].filter(isVisible)) {
    const ratio = ratioOf(getComputedStyle(path).stroke, background(path));
    if (ratio < 3) problems.push(`contrast ${ratio.toFixed(2)}: a waveform`);
  }
  for (const slider of main.querySelectorAll('input[type="range"]')) {
    const [track, line] = ['--neutral-200', '--line-strong'].map(name => getComputedStyle(slider).getPropertyValue(name));
    if (track !== line) problems.push(`the track of a slider is ${track}`);
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || seen.has(element) || !isVisible(element) || element.closest('button:disabled')) continue;
    if (/^(STYLE|SCRIPT|NOSCRIPT)$/.test(element.tagName)) continue;
    seen.add(element);
    const style = getComputedStyle(element);
    const below = background(element);
    const ratio = ratioOf(element.closest('svg') ? style.fill : style.color, below);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) problems.push(`contrast ${ratio.toFixed(2)}: ${text.slice(0, 40)}`);
  }
  return problems;
}
