(() => {
  /* On narrow screens the words in a figure are broken into lines, and its margins grow with them. */
  const NARROW = 520;
  const PRINTED = { width: 650, height: 780 };
  const plots = [...document.querySelectorAll(".js-plotly-plot")];
  const drawn = new Map();

  const broken = (text, most) => {
    let line = 0, gap = "", lines = "";
    for (const part of String(text).match(/<[^>]*>|\s+|[^\s<]+/g) ?? []) {
      if (part.startsWith("<")) {
        lines += gap + part;
        line = part === "<br>" ? 0 : line + gap.length;
        gap = "";
      } else if (/^\s/.test(part)) {
        gap = line ? " " : "";
      } else {
        const fits = !line || line + gap.length + part.length <= most;
        lines += (fits ? gap : "<br>") + part;
        line = fits ? line + gap.length + part.length : part.length;
        gap = "";
      }
    }
    return lines;
  };

  const remember = (plot) => {
    const full = plot._fullLayout;
    const names = Object.keys(full);
    const axes = names.filter((name) => /^[xy]axis\d*$/.test(name)).map((name) => {
      const { type, _categories, tickmode, tickvals, ticktext, tickfont, tickangle } = full[name];
      const words = type === "category" ? _categories : ticktext;
      const at = type === "category" ? words : tickvals;
      return words && tickfont && { name, words, at, size: tickfont.size, tickmode, tickvals, ticktext, tickangle };
    }).filter(Boolean);
    const headings = (full.annotations ?? []).map((each, index) => ({ index, each }))
      .filter(({ each }) => each.xref === "paper" && each.x === 0 && each.yanchor === "bottom")
      .map(({ index, each }) => ({ index, text: each.text, size: each.font.size, y: each.y }));
    const legends = names.filter((name) => /^legend\d*$/.test(name) && full[name]?.font).map((name) => {
      const { yanchor, y, yref, bgcolor, font } = full[name];
      return { name, yanchor, y, yref, bgcolor, size: font.size };
    });
    return { axes, headings, legends, title: full.title?.text, top: full.margin.t, height: full.height };
  };

  const changes = (plot, width) => {
    const was = drawn.get(plot), narrow = width < NARROW, layout = {};
    const area = narrow ? Math.max(plot._fullLayout._size.w, 120) : width;
    for (const { index, text, size } of was.headings) {
      layout[`annotations[${index}].text`] = narrow ? broken(text, Math.floor(area / 6.6)) : text;
      layout[`annotations[${index}].font.size`] = narrow ? 12 : size;
    }
    for (const { name, yanchor, y, yref, bgcolor, size } of was.legends) {
      /* A legend beside a heading has no room there, and moves into its panel. */
      if (yref !== "paper" || yanchor !== "bottom" || !was.headings.some((each) => Math.abs(each.y - y) < .001)) continue;
      layout[`${name}.yanchor`] = narrow ? "top" : yanchor;
      layout[`${name}.bgcolor`] = narrow ? "rgba(255,255,255,0.75)" : bgcolor;
      layout[`${name}.font.size`] = narrow ? 10 : size;
    }
    for (const { name, words, at, size, tickmode, tickvals, ticktext, tickangle } of was.axes) {
      const most = name.startsWith("y") ? 15 : Math.max(6, Math.floor(area / words.length / 6.2));
      layout[`${name}.tickmode`] = narrow ? "array" : tickmode;
      layout[`${name}.tickvals`] = narrow ? at : tickvals;
      layout[`${name}.ticktext`] = narrow ? words.map((word) => broken(word, most)) : ticktext;
      layout[`${name}.tickangle`] = narrow ? 0 : tickangle;
      layout[`${name}.tickfont.size`] = narrow ? 11 : size;
    }
    if (was.title) layout["title.text"] = narrow ? broken(was.title, Math.floor((width - 24) / 9)) : was.title;
    return layout;
  };

  const room = (plot) => {
    const was = drawn.get(plot);
    const box = (found) => (found ? found.getBBox().height : 0);
    const names = plot._fullLayout.legend?.yref === "container" ? box(plot.querySelector("g.legend .bg")) : 0;
    const first = was.headings.length ? box(plot.querySelector(`.annotation[data-index="${was.headings[0].index}"]`)) : 0;
    const top = names ? Math.max(was.top, names + first + 14) : was.top;
    return { "margin.t": top, height: was.height + top - was.top };
  };

  const resize = (plot, layout) => {
    plot.style.height = `${layout.height}px`;
    return Plotly.relayout(plot, layout);
  };

  const fit = async (plot, width) => {
    const narrow = width < NARROW;
    /* A figure that was drawn while it was folded away had no width. */
    if (Math.abs(plot._fullLayout.width - width) > 1) await Plotly.Plots.resize(plot);
    if (!drawn.has(plot)) drawn.set(plot, remember(plot));
    if (narrow || plot.dataset.narrow) await relabel(plot, width, narrow);
    plot.dataset.narrow = narrow ? "yes" : "";
    const after = room(plot);
    if (after.height !== plot._fullLayout.height) await resize(plot, after);
  };

  const relabel = async (plot, width, narrow) => {
    const maps = plot.data.flatMap((each, index) => (each.type === "heatmap" && each.texttemplate ? [index] : []));
    drawn.get(plot).scales ??= maps.map((index) => plot.data[index].showscale ?? true);
    const scales = drawn.get(plot).scales.map((shown) => shown && !narrow);
    if (maps.length) await Plotly.restyle(plot, { showscale: scales }, maps);
    await Plotly.relayout(plot, changes(plot, width));
  };

  const widths = new Map();
  const refit = (plot) => {
    const width = plot.clientWidth;
    if (!width || width === widths.get(plot)) return;
    widths.set(plot, width);
    fit(plot, width);
  };
  const refitAll = (entries) => setTimeout(() => entries.forEach(({ target }) => refit(target)));
  const observer = new ResizeObserver(refitAll);
  for (const plot of plots) {
    refit(plot);
    observer.observe(plot);
  }

  /* What scrolls in itself can be reached by the keyboard. */
  const scrolled = () => {
    for (const table of document.querySelectorAll(".table")) {
      if (table.scrollWidth > table.clientWidth) table.tabIndex = 0;
      else table.removeAttribute("tabindex");
    }
  };
  scrolled();
  window.addEventListener("resize", scrolled);

  /* On paper figures have the width of the page, and nothing is folded away. */
  const onScreen = new Map();
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const each of folded) each.open = true;
    for (const plot of plots) {
      const columns = plot.closest(".columns")?.children.length ?? 1;
      const [width, { height }] = [columns > 1 ? PRINTED.width / 2 - 14 : PRINTED.width, plot._fullLayout];
      onScreen.set(plot, height);
      resize(plot, { autosize: false, width, height: Math.min(height, PRINTED.height) });
      Plotly.relayout(plot, { "margin.t": room(plot)["margin.t"] });
    }
  });
  window.addEventListener("afterprint", () => {
    for (const each of folded) each.open = false;
    for (const plot of plots) resize(plot, { autosize: true, width: null, height: onScreen.get(plot) });
  });
})();
