// How paths are drawn: bars in the list of nodes, and on a node's page lines whose length is the round trip.

import type { Path } from "../../api/paths/paths.ts";
import { barsOf, countOf, lengthOf, type SeparateCounts } from "./path-shapes.ts";

/** A bar for each path, or for a share of many; and their number. `words`: all of it. */
export function PathBars({ counted, words }: { counted: SeparateCounts; words: string }) {
  const bars = barsOf(counted);
  const count = countOf(counted);
  if (bars.length === 0)
    return (
      <span title={words} role="img" aria-label={words}>
        {count}
      </span>
    );
  return (
    <span title={words}>
      <svg class="bars" width="40" height="10" viewBox="0 0 40 10" role="img" aria-label={words}>
        {bars.map((kind, at) => (
          <rect
            class={kind}
            opacity={kind === "old" ? 0.4 : undefined}
            x={at * 6}
            width="4"
            height="10"
            rx="1"
          />
        ))}
      </svg>
      <span class="faint" aria-hidden="true">
        {count}
      </span>
    </span>
  );
}

/** Room at both ends of a line, for the circle. */
const left = 6;

/** A line: whole where it is direct, dashed through a relay, cut where it is broken; old paths have no colour. */
export function PathLine({ path, isOld, isShort }: { path: Path; isOld: boolean; isShort: boolean }) {
  const drawingWidth = isShort ? 190 : 300;
  const width = drawingWidth - 2 * left;
  const isBroken = path.probe === "broken";
  const kind = isOld ? "old" : isBroken ? "brk" : path.path === "relayed" ? "rel" : "dir";
  // A broken line has no round trip: it is cut at three tenths, and ends at seven.
  const end = left + width * (isBroken ? 0.7 : lengthOf(path.rtt_ms));
  const cut = left + width * 0.3;
  return (
    <svg
      class={kind}
      viewBox={`0 0 ${drawingWidth} 20`}
      preserveAspectRatio="xMinYMid meet"
      aria-hidden="true"
    >
      <line class="base" x1={left} y1="10" x2={left + width} y2="10" />
      {isBroken ? (
        <>
          <line x1={left} y1="10" x2={cut} y2="10" />
          <path d={`M${cut + 5} 5l10 10m0-10l-10 10`} />
          <line x1={cut + 20} y1="10" x2={end - 4} y2="10" />
        </>
      ) : path.path === "none" ? null : (
        <line x1={left} y1="10" x2={end - 4} y2="10" />
      )}
      {path.path === "relayed" && !isBroken ? <circle cx={(left + end) / 2} cy="10" r="3.5" /> : null}
      {path.path === "none" && !isBroken ? null : <circle cx={end} cy="10" r="3.5" />}
    </svg>
  );
}
