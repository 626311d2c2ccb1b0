// Draws the charts that the page describes in its "charts" element; everything the page says is readable without it.
"use strict";
(() => {
  const scaled = (value, step, units) => {
    let size = Math.abs(value), i = 0;
    while (size >= step && i < units.length - 1) { size /= step; ++i; }
    const digits = size === 0 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(size)));
    return (value < 0 ? "-" : "") + size.toFixed(Math.min(digits, 3)).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "") + " " + units[i];
  };
  const texts = {
    bytes: (v) => scaled(v, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]),
    traffic: (v) => scaled(v, 1000, ["B", "kB", "MB", "GB", "TB"]),
    seconds: (v) => (v === 0 ? "0" : Math.abs(v) < 1e-3 ? scaled(v * 1e6, 1e9, ["us"]) : Math.abs(v) < 1 ? scaled(v * 1e3, 1e9, ["ms"]) : scaled(v, 1e12, ["s"])),
    share: (v) => (100 * v).toLocaleString("en", { maximumFractionDigits: 1 }) + " %",
    "": (v) => Number(v).toLocaleString("en", { maximumSignificantDigits: 4 }),
  };
  const most = (scale) => (scale.isHorizontal() ? Math.max(2, Math.min(8, Math.floor(scale.chart.width / 110))) : 8);
  // Ticks at powers of two.
  const doublings = (scale) => {
    const first = Math.ceil(Math.log2(scale.min)), last = Math.floor(Math.log2(scale.max)), step = Math.max(1, Math.ceil((last - first) / most(scale)));
    scale.ticks = [];
    for (let i = first; i <= last; i += step) scale.ticks.push({ value: 2 ** i });
  };
  // Ticks at multiples of a power of two: round in KiB, MiB and GiB.
  const binary = (scale) => {
    const step = 2 ** Math.ceil(Math.log2((scale.max - scale.min) / most(scale)));
    scale.ticks = [];
    for (let v = Math.ceil(scale.min / step) * step; v <= scale.max; v += step) scale.ticks.push({ value: v });
  };
  const axis = (spec, more) => ({
    title: { display: spec.label !== "", text: spec.label },
    ticks: spec.unit === null ? {} : { callback: (v) => texts[spec.unit](v), maxRotation: 0 },
    ...(spec.unit === "bytes" ? { afterBuildTicks: binary } : {}),
    ...(spec.doubling ? { type: "logarithmic", afterBuildTicks: doublings } : {}),
    ...more,
  });
  const tip = (spec, value) => (Array.isArray(value) ? value.map((v) => texts[spec.unit](v)).join(" to ") : texts[spec.unit](value));

  const dataset = (chart, s) => {
    const base = { label: s.label, data: s.data, backgroundColor: s.color, borderColor: s.color, stack: s.stack, pointStyle: "rect" };
    switch (chart.kind) {
      case "area": return s.style === "dashed"
        ? { ...base, type: "line", borderDash: [6, 4], borderWidth: 2, pointRadius: 0, pointStyle: "line", fill: false }
        : s.style === "point"
          ? { ...base, type: "line", showLine: false, pointRadius: 5, pointStyle: "triangle" }
          : { ...base, type: "line", stepped: "before", fill: true, pointRadius: 0, borderWidth: 0 };
      case "timeline": return { ...base, type: "bar", grouped: false, barPercentage: 0.9, categoryPercentage: 1, minBarLength: 1 };
      case "bar": return s.style === "mark" || s.style === "dashed"
        ? { ...base, type: "line", order: -1, showLine: s.style === "dashed", borderDash: [6, 4], borderWidth: 1, pointStyle: "line", pointRadius: 9, pointBorderWidth: 3, rotation: chart.lying ? 90 : 0 }
        : { ...base, type: "bar", maxBarThickness: 48 };
      default: return {
        ...base,
        type: chart.kind,
        showLine: chart.kind === "line" ? s.style !== "dots" : s.style === "plain" || s.style === "dashed",
        borderDash: s.style === "dashed" ? [6, 4] : [],
        borderWidth: 2,
        pointRadius: s.style === "plain" || s.style === "dashed" ? 0 : s.style === "star" ? 9 : 4,
        pointStyle: s.style === "star" ? "star" : s.style === "plain" || s.style === "dashed" ? "line" : "circle",
        pointBorderWidth: s.style === "star" ? 3 : 1,
      };
    }
  };

  // The timeline and the memory beside it share one time axis: a cursor in one stands in the other, and both begin at the same edge.
  const over_time = (chart) => chart.end > 0 && (chart.kind === "area" || chart.kind === "timeline");
  let cursor = null;
  const edge = { afterFit: (scale) => { scale.width = Math.max(scale.width, Math.min(96, scale.chart.width / 4)); } };
  const shared_cursor = {
    id: "sharedCursor",
    afterEvent: (chart, { event, inChartArea }) => {
      if (!chart.options.overTime) return;
      const at = event.type !== "mouseout" && inChartArea ? chart.scales.x.getValueForPixel(event.x) : null;
      if (at === cursor) return;
      cursor = at;
      drawn.forEach((other) => { if (other.options.overTime) other.draw(); });
    },
    afterDraw: (chart) => {
      if (!chart.options.overTime || cursor === null) return;
      const x = chart.scales.x.getPixelForValue(cursor), { top, bottom } = chart.chartArea;
      chart.ctx.save();
      chart.ctx.strokeStyle = ink("--soft");
      chart.ctx.beginPath();
      chart.ctx.moveTo(x, top);
      chart.ctx.lineTo(x, bottom);
      chart.ctx.stroke();
      chart.ctx.restore();
    },
  };
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const configuration = (chart) => {
    const lying = chart.kind === "timeline" || (chart.kind === "bar" && chart.lying);
    const categories = { type: "category", labels: chart.labels, stacked: chart.stacked };
    const linear = { type: "linear", stacked: chart.stacked };
    const named = chart.kind === "timeline" || chart.kind === "bar" || (chart.kind === "line" && chart.labels.length > 0);
    const value = lying ? "x" : "y";
    const numbers = chart.kind === "area" ? { x: { type: "linear", min: 0, max: chart.end }, y: { ...linear, min: 0 } }
      : named ? (lying ? { x: { ...linear, ...(chart.kind === "timeline" ? { min: 0, max: chart.end } : {}) }, y: categories } : { x: categories, y: { ...linear, beginAtZero: chart.kind === "bar" } })
        : { x: chart.x.doubling ? {} : { type: "linear" }, y: chart.y.doubling ? {} : { type: "linear", beginAtZero: true } };
    return {
      data: { labels: named ? chart.labels : undefined, datasets: chart.series.map((s) => dataset(chart, s)) },
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, parsing: true, normalized: true,
        indexAxis: lying ? "y" : "x",
        overTime: over_time(chart),
        interaction: chart.kind === "area" ? { mode: "index", intersect: false } : { mode: "nearest", intersect: true },
        scales: { x: axis(chart.x, numbers.x), y: axis(chart.y, { ...numbers.y, ...(over_time(chart) ? edge : {}) }) },
        plugins: {
          legend: { position: "bottom", labels: { boxWidth: 12, usePointStyle: true } },
          tooltip: { callbacks: { label: (item) => {
            const raw = item.raw !== null && typeof item.raw === "object" && !Array.isArray(item.raw) ? item.raw[value] : item.raw;
            return (item.raw && item.raw.name ? item.raw.name : item.dataset.label) + ": " + tip(chart[value], raw);
          } } },
        },
      },
    };
  };

  const charts = JSON.parse(document.getElementById("charts").textContent);
  const data = JSON.parse(document.getElementById("data").textContent);
  // What the reader may leave out: the strategies of a comparison, or of a plan's front, and ways that do not fit.
  const strategies = [...new Set((data.results || data.pareto || []).map((row) => row.strategy))];
  const hidden = new Set();
  const unfit = data.results ? data.results.filter((r) => !r.memory.fits).map((r) => r.strategy) : [];
  const first_word = (text) => text.split(/[ ,(]/)[0];
  const is_shown = (text) => !hidden.has(first_word(text));
  const chosen = (chart) => {
    if (hidden.size === 0) return chart;
    const kept = chart.labels.map((label, i) => i).filter((i) => is_shown(chart.labels[i]));
    const of_labels = chart.labels.length > 0 && chart.labels.some((label) => strategies.includes(label));
    const point = (p) => !p.name || ![...hidden].some((name) => new RegExp("(^|, )" + name + "[ ,(]").test(p.name));
    return { ...chart, labels: of_labels ? kept.map((i) => chart.labels[i]) : chart.labels,
      series: chart.series.map((s) => ({ ...s, data: of_labels ? kept.map((i) => s.data[i]) : Array.isArray(s.data) && s.data.some((p) => p && p.name) ? s.data.filter(point) : s.data })) };
  };
  let drawn = [];
  const draw = () => {
    Chart.defaults.color = ink("--soft");
    Chart.defaults.borderColor = ink("--line");
    drawn.forEach((chart) => chart.destroy());
    drawn = charts.map((chart, i) => new Chart(document.getElementById("chart-" + i), configuration(chosen(chart))));
    document.querySelectorAll("main tbody tr").forEach((row) => {
      const named = [...row.cells].find((cell) => strategies.includes(first_word(cell.textContent)));
      row.hidden = named !== undefined && strategies.length > 1 && row.closest("table").dataset.byStrategy === "yes" && !is_shown(named.textContent);
    });
  };
  const choice = (text, names) => {
    const label = document.createElement("label"), box = document.createElement("input");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => {
      names.forEach((name) => (box.checked ? hidden.delete(name) : hidden.add(name)));
      draw();
    });
    label.append(box, " " + text);
    return label;
  };
  if (strategies.length > 1) {
    const field = document.createElement("fieldset"), legend = document.createElement("legend");
    field.className = "choices";
    legend.textContent = "Show";
    field.append(legend, ...strategies.map((name) => choice(name, [name])));
    if (unfit.length > 0 && unfit.length < strategies.length) field.append(choice("what does not fit", unfit));
    document.querySelector("main").before(field);
    document.querySelectorAll("main table").forEach((table) => {
      const head = table.tHead.textContent;
      if (head.startsWith("Strategy") || head.includes("Way")) table.dataset.byStrategy = "yes";
    });
  }
  Chart.register(shared_cursor);
  draw();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.addEventListener("beforeprint", () => drawn.forEach((chart) => chart.resize()));
  document.documentElement.dataset.drawn = String(drawn.length);
})();
