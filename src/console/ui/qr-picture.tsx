// A QR code as SVG: one path, dark on light in both colour schemes, because many phones read no inverted code.

import { qrOf } from "./qr-code.ts";

export function QrPicture({ text, label }: { text: string; label: string }) {
  const modules = qrOf(text);
  // With the quiet zone of four modules.
  const size = modules.length + 8;
  const cells = modules.flatMap((row, y) =>
    row.flatMap((isDark, x) => (isDark ? [`M${x + 4} ${y + 4}h1v1h-1z`] : [])),
  );
  return (
    <svg class="qr" role="img" aria-label={label} viewBox={`0 0 ${size} ${size}`}>
      <rect width={size} height={size} fill="#fff" />
      <path d={cells.join("")} fill="#000" shape-rendering="crispEdges" />
    </svg>
  );
}
