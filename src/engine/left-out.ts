// Settings of a control plane that this machine left out, as log, status and doctor show them. Keep this file light:
// `status` loads it.

/** Both are short plain text. */
export type LeftOut = { key: string; reason: string };

/** Called for each setting that is left out. */
export type LeaveOut = (key: string, reason: string) => void;

/** The key for a configuration that is refused as a whole. It stands first. */
export const wholeConfiguration = "the new configuration";

/** One sentence for the user. `leftOut` is not empty. */
export function describeLeftOut(leftOut: readonly LeftOut[]): string {
  const [first, ...others] = leftOut;
  if (first?.key !== wholeConfiguration) return describeSettings(leftOut);
  const settings = others.length === 0 ? "" : `; ${describeSettings(others)}`;
  return `the newest configuration is not in use: ${first.reason}${settings}`;
}

function describeSettings(leftOut: readonly LeftOut[]): string {
  return `left out of the control plane's configuration: ${describeFirst(leftOut)}`;
}

/** The first three, and how many more. */
export function describeFirst(leftOut: readonly LeftOut[]): string {
  const [first, second, third, ...rest] = leftOut.map(({ key, reason }) => `${key} (${reason})`);
  const shown = [first, second, third].filter((each) => each !== undefined).join("; ");
  return `${shown}${rest.length === 0 ? "" : `; and ${rest.length} more`}`;
}
