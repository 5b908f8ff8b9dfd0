for (const player of document.querySelectorAll(".player")) {
  const film = JSON.parse(document.getElementById(player.dataset.film).textContent);
  const [button, slider, said] = player.children;
  const last = film.labels.length - 1;
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  let wanted = 0, shown = 0, timer = null;
  const draw = () => {
    if (wanted === shown) return;
    shown = wanted;
    said.textContent = film.labels[shown];
    slider.setAttribute("aria-valuetext", film.labels[shown]);
    for (const part of film.parts) Plotly.update(part.id, ...part.frames[shown]);
  };
  const show = (frame) => {
    wanted = Math.max(0, Math.min(last, frame));
    slider.value = wanted;
    setTimeout(draw);
  };
  const playing = (does) => {
    button.textContent = does ? "❚❚" : "▶";
    button.setAttribute("aria-pressed", String(does));
    said.setAttribute("aria-live", does ? "off" : "polite");
  };
  const pause = () => { clearInterval(timer); timer = null; playing(false); };
  const play = () => {
    if (wanted === last) show(0);
    playing(true);
    /* Those who asked their system for less motion see single pictures. */
    timer = setInterval(() => { if (wanted === last) pause(); else show(wanted + 1); }, still.matches ? 1500 : 150);
  };
  for (const part of film.parts) Plotly.Plots.resize(part.id);
  slider.addEventListener("input", () => { pause(); show(Number(slider.value)); });
  button.addEventListener("click", () => timer === null ? play() : pause());
  document.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined || event.target.matches("input") || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    pause();
    show(wanted + step);
  });
}
