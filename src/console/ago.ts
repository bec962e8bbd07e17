// A time as people say it, beside the present one.

const steps: readonly (readonly [number, Intl.RelativeTimeFormatUnit])[] = [
  [60, "second"],
  [60, "minute"],
  [24, "hour"],
  // "in 2mo" would be too coarse for the end of a certificate.
  [100, "day"],
  [12, "month"],
  [Number.POSITIVE_INFINITY, "year"],
];
const past = new Intl.RelativeTimeFormat("en", { style: "narrow", numeric: "auto" });
// "next mo." would not fit into a sentence such as "ends next mo.".
const future = new Intl.RelativeTimeFormat("en", { style: "narrow", numeric: "always" });

/** "2m ago", "yesterday", "in 3d". Both in ms. */
export function ago(at: number, from: number): string {
  let amount = (at - from) / 1000;
  if (Math.abs(amount) < 10) return "now";
  const format = amount < 0 ? past : future;
  for (const [size, unit] of steps) {
    // What is to come ends in 7 days until half a day is gone.
    const whole = amount < 0 ? Math.trunc(amount) : Math.round(amount);
    if (Math.abs(whole) < size) return format.format(whole, unit);
    amount /= unit === "day" ? 30 : size;
  }
  return "";
}

/** The day of the browser's zone, as a field of a date has it. */
export function dayOf(at: number): string {
  const date = new Date(at);
  const two = (number: number) => `${number}`.padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}
