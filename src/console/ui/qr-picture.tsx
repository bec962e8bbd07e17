// A QR code as SVG: one path, dark on light in both colour schemes, because many phones read no inverted code.

import { encode } from "uqr";

export function QrPicture({ text, label }: { text: string; label: string }) {
  const { data, size } = encode(text, { border: 4 });
  const cells = data.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`M${x} ${y}h1v1h-1z`] : [])));
  return (
    <svg class="qr" role="img" aria-label={label} viewBox={`0 0 ${size} ${size}`}>
      <rect width={size} height={size} fill="#fff" />
      <path d={cells.join("")} fill="#000" shape-rendering="crispEdges" />
    </svg>
  );
}
