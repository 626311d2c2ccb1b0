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
        interaction: chart.kind === "area" ? { mode: "index", intersect: false } : { mode: "nearest", intersect: true },
        scales: { x: axis(chart.x, numbers.x), y: axis(chart.y, numbers.y) },
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
  const drawn = charts.map((chart, i) => new Chart(document.getElementById("chart-" + i), configuration(chart)));
  window.addEventListener("beforeprint", () => drawn.forEach((chart) => chart.resize()));
  document.documentElement.dataset.drawn = String(drawn.length);
})();
