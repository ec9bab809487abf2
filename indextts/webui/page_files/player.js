// The player of every sound on the page (markup.sound_html): the browser's own controls, and below them the waveform,
// which a click seeks in. It is drawn once the sound is loaded; a sound that starts stops the others.
(() => {
  const BARS = 120, HEIGHT = 40; // of the viewBox, which player.css stretches
  const RATE_HZ = 8000;
  const MAX_S = 300; // a longer one would take too much memory

  // Return the path of the greatest value of each part of a sound.
  const waveform = samples => {
    const width = samples.length / BARS, peaks = new Float32Array(BARS);
    samples.forEach((value, place) => {
      const bar = Math.min(BARS - 1, Math.floor(place / width));
      peaks[bar] = Math.max(peaks[bar], Math.abs(value));
    });
    const most = Math.max(...peaks) || 1;
    return [...peaks].map((peak, bar) => {
      const height = Math.max(1, HEIGHT * peak / most);
      return `M${bar + 0.5} ${((HEIGHT - height) / 2).toFixed(1)}v${height.toFixed(1)}`;
    }).join("");
  };

  customElements.define("sound-player", class extends HTMLElement {
    connectedCallback() {
      const audio = this.audio = this.querySelector("audio");
      if (!audio || this.drawn !== undefined) return;
      this.drawn = "";
      audio.addEventListener("play", () => {
        document.querySelectorAll("audio").forEach(other => other !== audio && other.pause());
        this.draw();
        this.follow();
      });
      audio.addEventListener("loadedmetadata", () => this.draw());
      audio.addEventListener("timeupdate", () => this.show());
      if (audio.readyState) this.draw();
    }

    async draw() {
      const { audio } = this, address = audio.currentSrc;
      if (address === this.drawn) return;
      this.drawn = address; // the player of the review gets another sound for each clip
      this.querySelector("svg")?.remove();
      try {
        if (audio.duration > MAX_S) return;
        const data = await (await fetch(address)).arrayBuffer();
        const sound = await new OfflineAudioContext(1, 1, RATE_HZ).decodeAudioData(data);
        if (address !== this.drawn) return;
        const path = waveform(sound.getChannelData(0)), holder = document.createElement("div");
        holder.innerHTML = `<svg viewBox="0 0 ${BARS} ${HEIGHT}" preserveAspectRatio="none" aria-hidden="true">`
          + `<path d="${path}"/><path class="played" d="${path}"/></svg>`;
        const svg = holder.firstChild;
        svg.addEventListener("pointerdown", ({ clientX }) => {
          const { left, width } = svg.getBoundingClientRect();
          audio.currentTime = audio.duration * (clientX - left) / width;
          audio.play().catch(() => {});
        });
        this.append(svg);
        this.show();
      } catch { /* a format that only the browser's controls can play */ }
    }

    show() {
      const { currentTime, duration } = this.audio, share = currentTime / (duration || 1);
      this.style.setProperty("--left", `${100 - 100 * share}%`);
    }

    follow() {
      if (!this.isConnected || this.audio.paused) return;
      this.show();
      requestAnimationFrame(() => this.follow());
    }
  });
})();
