// Version numbers of our releases and of the engine: reading and comparing. Nothing here asks a server.

/** The `1.11.0` in what a program says of itself (`Version: 1.11.0+dfsg`), or undefined. */
export function findVersion(text: string): string | undefined {
  return /(?<![\w.])v?(\d{1,5}\.\d{1,5}\.\d{1,5})(?![\d.])/.exec(text)?.[1];
}

/** Three numbers and nothing else, which is also what is safe in a URL. */
export function isVersion(text: string): boolean {
  return /^\d{1,5}\.\d{1,5}\.\d{1,5}$/.test(text);
}

/** Negative if a is older than b, 0 if they are the same. */
export function compareVersions(a: string, b: string): number {
  const left = a.split(".").map(Number);
  const right = b.split(".").map(Number);
  for (let at = 0; at < 3; at++) {
    const difference = (left[at] ?? 0) - (right[at] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}
