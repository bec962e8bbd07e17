// Waits for what another process, or work in the background, brings about. For tests whose clock is real.

/** The first result that is not false, null or undefined. */
export async function until<T>(
  look: () => T | Promise<T>,
  { what = look.toString(), ms = 60_000, everyMs = 20 } = {},
): Promise<NonNullable<Exclude<T, false>>> {
  for (const end = performance.now() + ms; ; await Bun.sleep(everyMs)) {
    const found = await look();
    if (isFound(found)) return found;
    if (performance.now() > end) throw new Error(`Timed out waiting for ${what}`);
  }
}

function isFound<T>(found: T): found is NonNullable<Exclude<T, false>> {
  return found !== false && found !== null && found !== undefined;
}
