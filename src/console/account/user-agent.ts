// The browser's User-Agent in words. Pure.

/** In this order: most browsers also claim to be later ones of this list. */
const browsers = [
  [/\bEdg(e|A|iOS)?\//, "Edge"],
  [/\bOPR\//, "Opera"],
  [/\b(Firefox|FxiOS)\//, "Firefox"],
  [/\b(Chrome|HeadlessChrome|CriOS|Chromium)\//, "Chrome or Chromium"],
  [/\bSafari\//, "Safari"],
] as const;
/** In this order, too: Android also claims to be Linux, and iOS to be like Mac OS X. */
const systems = [
  [/\bAndroid\b/, "Android"],
  [/\b(iPhone|iPad|iPod)\b/, "iOS"],
  [/\bCrOS\b/, "ChromeOS"],
  [/\bWindows\b/, "Windows"],
  [/\bMac OS X\b|\bMacintosh\b/, "macOS"],
  [/\bLinux\b/, "Linux"],
  [/\bFreeBSD\b/, "FreeBSD"],
] as const;

/** "Firefox on Linux"; the text of another program is returned as it is. */
export function browserWords(agent: string): string {
  const find = (known: readonly (readonly [RegExp, string])[]) =>
    known.find(([pattern]) => pattern.test(agent))?.[1];
  const [browser, system] = [find(browsers), find(systems)];
  if (browser === undefined) return agent === "" ? "unknown" : agent;
  return system === undefined ? browser : `${browser} on ${system}`;
}
