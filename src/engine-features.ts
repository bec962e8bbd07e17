// What the control plane knows of engine versions: which configuration keys and certificates they understand, and
// which of them are refused.

export type EngineVersion = readonly [major: number, minor: number, patch: number];

/** A node that has not said its engine gets what the oldest supported one understands. */
export const oldestEngine: EngineVersion = [1, 6, 1];

export function parseEngineVersion(text: string | null | undefined): EngineVersion {
  const match = /^v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?/.exec(text ?? "");
  return match === null ? oldestEngine : [Number(match[1]), Number(match[2]), Number(match[3] ?? 0)];
}

export function atLeast(engine: EngineVersion, major: number, minor: number, patch = 0): boolean {
  if (engine[0] !== major) return engine[0] > major;
  return engine[1] === minor ? engine[2] >= patch : engine[1] > minor;
}

/** 1.9.4 to 1.9.6 accept packets with a foreign source address (CVE-2025-62820). */
export function isRefusedEngine(engine: EngineVersion): boolean {
  return atLeast(engine, 1, 9, 4) && !atLeast(engine, 1, 9, 7);
}
