// Version numbers of releases: syntax and order.

/** Exactly three numbers, which are also safe in a URL. */
export function isVersion(text: string): boolean {
  return /^\d{1,5}\.\d{1,5}\.\d{1,5}$/.test(text);
}

/** Negative if a is older than b, 0 if they are equal. */
export function compareVersions(a: string, b: string): number {
  const left = a.split(".").map(Number);
  const right = b.split(".").map(Number);
  for (let at = 0; at < 3; at++) {
    const difference = (left[at] ?? 0) - (right[at] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}
