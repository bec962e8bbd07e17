// Colors of round trips in pictures and tables of the map.

/** The shades, from the lightest, end before these medians (ms); a fifth one follows. */
export const heatBounds = [10, 20, 40, 80];

/** How a round trip (ms) is colored: from 1 to 5; 0, not at all, if none was measured. */
export const heatLevel = (ms: number | null): number =>
  ms === null ? 0 : heatBounds.filter((bound) => ms >= bound).length + 1;
