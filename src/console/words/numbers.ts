// Numbers as all pages write them.

/** "39,932": a whole number. Without Intl, whose first format on a page costs 20 ms. */
export const numberText = (value: number): string => `${value}`.replace(/\B(?=(...)+$)/g, ",");

/** "1 node", "39,932 nodes". */
export const plural = (count: number, noun: string): string =>
  `${numberText(count)} ${noun}${count === 1 ? "" : "s"}`;

/** Milliseconds of a round trip: with one digit after the point below 10, else whole. */
export const msWords = (ms: number): string => `${ms < 10 ? Math.round(10 * ms) / 10 : Math.round(ms)}`;
