// Plays the pieces of speech that a job is writing, one after the other without a gap.
//
// The server lists them in #listen-players [data-stream]: `data-stream` names the render, `data-live` says whether
// its job is running, `data-pieces` has the addresses. A render that was finished when the page first saw it is
// not played: the user starts its player.
(() => {
  const LOOK_MS = 250;
  const LEAD_S = 0.05; // between scheduling and playing
  let context, name, taken, end, line, before;

  // The player of a new text comes into view: on a phone it is far below the button.
  const player = () => document.querySelector("#listen-players audio");
  addEventListener("click", event => {
    if (event.target.closest?.("#listen-start")) before = player()?.src ?? "";
  }, true);

  const play = async address => {
    const data = await (await fetch(address)).arrayBuffer();
    const sound = await context.decodeAudioData(data);
    const source = context.createBufferSource();
    source.buffer = sound;
    source.connect(context.destination);
    end = Math.max(end, context.currentTime + LEAD_S);
    source.start(end);
    end += sound.duration;
  };

  setInterval(() => {
    if (before !== undefined && (player()?.src ?? before) !== before) {
      player().scrollIntoView({ block: "nearest" });
      before = undefined;
    }
    const list = document.querySelector("#listen-players [data-stream]");
    if (!list) return;
    if (list.dataset.stream !== name) {
      if (list.dataset.live !== "true") return;
      context?.close(); // an earlier stream falls silent
      context = new AudioContext();
      [name, taken, end, line] = [list.dataset.stream, 0, 0, Promise.resolve()];
    }
    for (const address of list.dataset.pieces.split(" ").slice(taken)) {
      taken += 1;
      line = line.then(() => play(address)).catch(error => console.error(error));
    }
    list.dataset.taken = taken;
  }, LOOK_MS);
})();
