// How paths are drawn: bars in the list of nodes, and on a node's page lines whose length is the round trip.

import type { Path, PathCounts } from "../../api/paths/paths.ts";
import { lengthOf } from "./path-length.ts";

const maxBars = 6;

/**
 * Grey for direct, amber for relayed, red for broken, and the number. Beyond six paths, each kind has its share; where all
 * are direct, the number alone says it. `words`: all of it.
 */
export function PathBars({ counted, words }: { counted: PathCounts; words: string }) {
  const { broken, relayed, direct, relays_away } = counted;
  const count = broken + relayed + direct + relays_away;
  // Many paths that are all direct.
  if (count > maxBars && broken + relayed === 0)
    return (
      <span title={words} role="img" aria-label={words}>
        {count}
      </span>
    );
  const scaled = (part: number) =>
    count <= maxBars || part === 0 ? part : Math.max(1, Math.floor((part * maxBars) / count));
  const [red, amber] = [scaled(broken), scaled(relayed)];
  const kinds = Array.from({ length: Math.min(count, maxBars) }, (_, at) =>
    at < red ? "x" : at < red + amber ? "r" : undefined,
  );
  return (
    <span title={words}>
      <svg class="bars" width="40" height="10" viewBox="0 0 40 10" role="img" aria-label={words}>
        {kinds.map((kind, at) => (
          <rect class={kind} x={at * 6} width="4" height="10" rx="1" />
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
