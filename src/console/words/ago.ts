// Relative times in words.

// Written without Intl: its first format on a page costs 20 ms, before anything is shown.

/** Units, each with how many of it make one of the next. */
const steps: readonly (readonly [size: number, unit: string])[] = [
  [60, "s"],
  [60, "m"],
  [24, "h"],
  // "in 2mo" would be too coarse for the end of a certificate.
  [100, "d"],
  [12, "mo"],
  [Number.POSITIVE_INFINITY, "y"],
];

/** The largest unit that says it in a whole number: "2m ago", "1d ago", "in 3d". `at` and `from`: ms since 1970. */
export function ago(at: number, from: number): string {
  let amount = (at - from) / 1000;
  if (Math.abs(amount) < 10) return "now";
  for (const [size, unit] of steps) {
    // Rounds: a future time is "in 7 days" until half a day has passed.
    const whole = amount < 0 ? Math.trunc(amount) : Math.round(amount);
    if (Math.abs(whole) < size) return whole < 0 ? `${-whole}${unit} ago` : `in ${whole}${unit}`;
    // Months of 30 days, although days are shown up to 100.
    amount /= unit === "d" ? 30 : size;
  }
  return "";
}

const two = (number: number) => `${number}`.padStart(2, "0");

/** "14:05", in the browser's zone. */
export function clockOf(at: number): string {
  const date = new Date(at);
  return `${two(date.getHours())}:${two(date.getMinutes())}`;
}

/** The day of the browser's zone, as a field of a date has it. */
export function dayOf(at: number): string {
  const date = new Date(at);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}
