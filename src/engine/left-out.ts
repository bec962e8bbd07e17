// Settings of a control plane that this machine left out, as log, status and doctor show them. Keep this file light:
// `status` loads it.

/** Both are short plain text. */
export type LeftOut = { key: string; reason: string };

/** Called for each setting that is left out. */
export type LeaveOut = (key: string, reason: string) => void;

/** The key for a configuration that is refused as a whole. It stands first. */
export const wholeConfiguration = "the new configuration";

/** One sentence for the user. */
export function describeLeftOut([whole, ...others]: readonly LeftOut[]): string {
  if (whole?.key !== wholeConfiguration)
    return describeSettings(whole === undefined ? [] : [whole, ...others]);
  const settings = others.length === 0 ? "" : `; ${describeSettings(others)}`;
  return `the newest configuration is not in use: ${whole.reason}${settings}`;
}

function describeSettings(leftOut: readonly LeftOut[]): string {
  return `left out of the control plane's configuration: ${firstOf(leftOut)}`;
}

function firstOf(leftOut: readonly LeftOut[]): string {
  const [first, second, third, ...rest] = leftOut.map(({ key, reason }) => `${key} (${reason})`);
  const shown = [first, second, third].filter((each) => each !== undefined).join("; ");
  return `${shown}${rest.length === 0 ? "" : `; and ${rest.length} more`}`;
}

/** The seal that this node holds, and what it would refuse of the configuration in force. Number 0: why it holds none. */
export type SealSeen = {
  number: number;
  hash: string;
  made_at: number;
  objections: LeftOut[];
  /** What it objects to is kept out. */
  enforced?: true | undefined;
};

/** One sentence for the user. Users compare the hash with the one of a signer. */
export function describeSeal({ number, hash, made_at: madeAt, objections, enforced }: SealSeen): string {
  if (number === 0) return `no seal of the organization can be used: ${firstOf(objections)}`;
  const made = new Date(madeAt * 1000).toISOString().slice(0, 10);
  const [mode, verb] = enforced === true ? ["enforced", "refuses"] : ["observed", "would refuse"];
  const which = `seal ${number} of ${made}, hash ${hash.slice(0, 16)}, is ${mode}`;
  return objections.length === 0 ? which : `${which}: it ${verb} ${firstOf(objections)}`;
}
